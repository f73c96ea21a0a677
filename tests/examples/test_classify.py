from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from examples.classify import labels, main
from fne.store.catalog import Captioned, write_captions
from fne.store.layout import Layer
from fne.store.writer import write_rows

IDS = [f"{number:02d}.jpg" for number in range(40)]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """Embeddings that show the tag of an image, and a last layer that shows nothing."""
    monkeypatch.chdir(tmp_path)
    dogs = np.arange(40) % 3 == 0
    noise = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    shown = np.where(dogs[:, None], 1, -1).astype(np.int8).repeat(4, axis=1)
    write_rows(
        Path("features/embeddings"), "embeddings", [Layer("conv", 4)], "ternary", [(0, IDS, shown)], {}, {}
    )
    layers = [Layer("conv", 2), Layer("fc7", 4)]
    write_rows(Path("features/activations"), "activations", layers, "float32", [(0, IDS, noise)], {}, {})
    tags = [("dog",) if dog else () for dog in dogs]
    captioned = [Captioned(each, "train", ("x",), tag) for each, tag in zip(IDS, tags, strict=True)]
    write_captions(Path("data/captions.jsonl"), captioned)


def run(*arguments):
    return CliRunner().invoke(main, ["--repeats", "2", *arguments])


def test_features_that_show_a_tag_beat_features_that_do_not():
    first, mean = run().output.splitlines()
    assert first.startswith("| dog | 14 | 100.0 | ")
    assert float(first.split("|")[4]) < 75
    assert mean == first.replace("dog | 14", "mean of 1 |").replace("| |", "| |")


def test_another_layer_can_be_chosen_and_an_unknown_one_is_refused():
    assert run("--layer", "conv").exit_code == 0
    assert "has no layer 'fc8'; it has conv, fc7" in run("--layer", "fc8").output


def test_a_data_set_without_tags_is_labeled_by_its_folders():
    assert labels(Captioned("dogs/1.jpg", "gallery", (), ())) == {"dogs"}
    assert labels(Captioned("1.jpg", "gallery", (), ("cat",))) == {"cat"}
    assert labels(Captioned("1.jpg", "gallery", (), ())) == set()


def test_too_few_images_for_the_folds_are_refused():
    assert "no tag or folder has 20 images with it and 20 without it" in run("--folds", "20").output
