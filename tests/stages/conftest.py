"""Stages run on tiny projects."""

import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from tests.support import captions, tagging
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import Run, invoke, run, write_tiny

__all__ = ["run"]

TINY = {"threads": 1, "units": 8, "word_dim": 6, "batch": 32, "epochs": 1, "min_count": 1}
CAPTIONER = {
    "train_captioner": TINY,
    "score_captions": {"meteor": "never"},
    "captions_page": {"examples": 5},
    "runtime": {"device": "cpu", "threads": 1},
}


def write_captioning(folder: Path) -> None:
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder, CAPTIONER)
    captions.write_world(folder)


def write_tagging(folder: Path) -> None:
    tagging.write_project(folder, tagging.scenes(60))


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Callable[..., Path]:
    """Return folders in which stages have run, each made once: give what writes the inputs, and the stages."""
    known: dict[tuple[object, ...], Path] = {}

    def make(write: Callable[[Path], None], *stages: str) -> Path:
        if (write, stages) not in known:
            folder = tmp_path_factory.mktemp("made")
            write(folder)
            with chdir(folder):
                results = [invoke(stage) for stage in stages]
            assert all(each.exit_code == 0 for each in results), [each.output for each in results]
            known[write, stages] = folder
        return known[write, stages]

    return make


@pytest.fixture
def enter(made, tmp_path, monkeypatch) -> Callable[..., None]:
    """Enter a copy of such a folder."""

    def enter(*what) -> None:
        monkeypatch.chdir(shutil.copytree(made(*what), tmp_path / "project"))

    return enter


@pytest.fixture
def ready(enter) -> Run:
    """Run stages by name, in a folder with embeddings and tokens."""
    enter(write_tiny, "standardize", "embed", "tokenize")
    return invoke


@pytest.fixture
def encoded(enter) -> Run:
    """Run stages by name, in a folder with the vectors of a trained model."""
    enter(write_tiny, "standardize", "embed", "tokenize", "train", "encode")
    return invoke


@pytest.fixture
def tagging_project(enter):
    """A folder of its own with a trained tagger."""
    enter(write_tagging, "train_tagger")


@pytest.fixture
def scored_tags(enter):
    """A folder of its own in which tags were written and scored."""
    enter(write_tagging, "train_tagger", "write_tags", "score_tags")


@pytest.fixture
def captioning_project(enter):
    """A folder of its own with a captioner that has learned next to nothing."""
    enter(write_captioning, "train_captioner")


@pytest.fixture
def scored_captions(enter):
    """A folder of its own in which captions were written and scored."""
    enter(write_captioning, "train_captioner", "write_captions", "score_captions")
