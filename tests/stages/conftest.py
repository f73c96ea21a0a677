"""Stages run on tiny projects."""

import shutil

import pytest

from tests.support import captions, tagging
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import invoke, run

__all__ = ["run"]


@pytest.fixture
def tagging_project(tmp_path, monkeypatch):
    """A folder in which a tagger was trained."""
    monkeypatch.chdir(tmp_path)
    tagging.write_project(tmp_path, tagging.scenes(60))
    result = invoke("train_tagger")
    assert result.exit_code == 0, result.output
    return tmp_path


@pytest.fixture(scope="session")
def trained_captioner(tmp_path_factory):
    """A folder with a captioner that has learned next to nothing."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(
        folder,
        {
            "train_captioner": {"units": 8, "word_dim": 6, "batch": 32, "epochs": 1, "min_count": 1},
            "score_captions": {"meteor": "never"},
            "captions_page": {"examples": 5},
            "runtime": {"device": "cpu", "threads": 1},
        },
    )
    captions.write_world(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        result = invoke("train_captioner")
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def captioning_project(trained_captioner, tmp_path, monkeypatch):
    """A folder of its own with a trained captioner."""
    folder = tmp_path / "project"
    shutil.copytree(trained_captioner, folder)
    monkeypatch.chdir(folder)
    return folder
