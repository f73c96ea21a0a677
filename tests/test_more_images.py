"""Images that no training reads do not train again, though they change stores and catalogs."""

import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image as Picture

from fne.core.files import file_digest
from fne.store.catalog import Captioned, Image, read_captions, read_images, write_captions, write_images
from fne.store.rows import Rows, write_rows
from tests.support import captions, finetuning, tagging
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import COMMANDS

KNOWN = "this training has finished before"
EMBEDDINGS, CAPTIONS, IMAGES = captions.EMBEDDINGS, captions.CAPTIONS, captions.IMAGES


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty project."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    return tmp_path


def run(stage: str) -> str:
    commands = {"extract": f"{IMAGES} features/activations"} | COMMANDS
    result = CliRunner().invoke(import_module(f"stages.{stage}").main, commands[stage].split())
    assert result.exit_code == 0, result.output
    return result.output


def add_to_catalog(split: str, texts: tuple[str, ...], tags: tuple[str, ...] = ()) -> None:
    """Add an image to a split, before the others."""
    known = read_captions(CAPTIONS)[0]
    write_captions(CAPTIONS, [Captioned("000.png", split, texts, tags), *known])


def add_row() -> None:
    """Give the new image the embedding of another."""
    rows = Rows.open(EMBEDDINGS)
    values = rows.read(rows.ids)
    shards = [(0, ["000.png", *rows.ids], np.concatenate([values[:1], values]))]
    write_rows(EMBEDDINGS, "embeddings", rows.layers, rows.dtype, shards, rows.artifact.settings, {})


@pytest.mark.parametrize(("split", "known"), [("test", True), ("train", False), ("val", False)])
@pytest.mark.parametrize("stage", ["train_tagger", "train_captioner"])
def test_a_describing_model_is_trained_again_only_for_images_that_it_reads(folder, stage, split, known):
    if stage == "train_tagger":
        tagging.write_project(folder, tagging.scenes(60))
        texts, tags = ("There is a red circle.",), ("red", "circle")
    else:
        captions.write_world(folder)
        change_params(folder, {stage: captions.SMALL | {"threads": 1}, "runtime": {"device": "cpu"}})
        texts, tags = ("A red ring.",), ("red", "ring")
    run(stage)
    assert KNOWN in run(stage)
    add_to_catalog(split, texts, tags)
    add_row()
    assert (KNOWN in run(stage)) == known


def test_a_network_is_tuned_again_only_for_images_that_it_reads(folder):
    finetuning.write_tunable_project(folder, epochs=1)
    run("finetune")
    for split, known in (("test", True), ("train", False)):
        Picture.new("RGB", (250, 240), "purple" if known else "green").save("photos/000.png")
        files = [each for each in read_images(IMAGES)[0] if each.id != "000.png"]
        size = Path("photos/000.png").stat().st_size
        new = Image("000.png", "000.png", file_digest(Path("photos/000.png")), size, 250, 240)
        write_images(IMAGES, [new, *files])
        write_captions(CAPTIONS, [each for each in read_captions(CAPTIONS)[0] if each.id != "000.png"])
        add_to_catalog(split, ("a red ground that is longer than all of the other captions",))
        outputs = {stage: run(stage) for stage in (*finetuning.MADE_ONCE, "finetune")}
        assert (KNOWN in outputs["train"], KNOWN in outputs["finetune"]) == (known, known)
