"""When a row of the paper stands beside the results: only if everything recorded is that row's."""

import json
from pathlib import Path

import pytest

from fne.paper.data import load
from fne.paper.presets import preset
from fne.paper.tables import rows
from fne.report.printed import RECORDED, printed_row
from fne.store.catalog import Captioned
from fne.store.lineage import Artifact

FIVE = ("a", "b", "c", "d", "e")
CATALOG = [
    Captioned(f"{split}-{number}", split, FIVE, ())
    for split, images in {"train": 6000, "val": 1000, "test": 1000}.items()
    for number in range(images)
]
CAFFE = "ca" * 32
NUMBERS = {"R@1": 20.0, "R@5": 45.0, "R@10": 60.0, "median_rank": 6.0, "mean_rank": 30.0}


@pytest.fixture(autouse=True)
def _caffe_is_known(monkeypatch):
    monkeypatch.setitem(load("weights"), "sha256", [CAFFE])


def metrics(name="test_full", images=1000):
    found = {"image_to_text": NUMBERS, "text_to_image": NUMBERS, "images": images, "captions": 5 * images}
    return json.dumps({name: found}).encode()


def ranks_of(method, **changes):
    """The ranks of a run of a method on Flickr8k; `changes` are settings of artifacts by name."""
    lineage = {name: {"digest": "x", "settings": {}} for name in RECORDED.values()}
    for key, value in preset(method, "flickr8k").overrides.items():
        section, name = key.split(".")
        lineage[RECORDED[section]]["settings"][name] = value
    images = {"backbone": "vgg16", "activations": "post_relu", "resize": "squash", "crops": "ten"}
    lineage["activations"] = {"digest": "x", "settings": images | {"precision": "float32", "extractor": 1}}
    lineage["weights"] = {"digest": CAFFE, "settings": {"kind": "file"}}
    for name, settings in changes.items():
        lineage[name]["settings"] |= settings
    return Artifact(Path("ranks.h5"), "ranks", "x", {}, lineage)


def test_the_paper_stands_beside_a_run_of_its_own_experiment():
    found = printed_row(metrics(), ranks_of("FNE-SH"), CATALOG)
    assert found.source == "FNE-SH in Table 2 (Results on Flickr8k), settings following the paper"
    assert found.figures == {
        "image_to_text": {"R@1": 25.0, "R@5": 50.8, "R@10": 64.3, "median_rank": 5},
        "text_to_image": {"R@1": 18.6, "R@5": 44.9, "R@10": 58.0, "median_rank": 7},
    }


def test_notes_of_the_row_come_along():
    [row] = [row for row in rows(2) if row.model == "FC7-MH-bl"]
    assert printed_row(metrics(), ranks_of("FC7-MH-bl"), CATALOG).notes == row.notes != []


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"margin": 0.17}},
        {"embeddings": {"low": -0.3}},
        {"tokens": {"min_count": 2}},
        {"activations": {"crops": "center"}},
    ],
)
def test_no_row_stands_beside_other_settings(changes):
    assert printed_row(metrics(), ranks_of("FNE-SH", **changes), CATALOG) is None


def test_no_row_stands_beside_other_weights():
    ranks = ranks_of("FNE-SH")
    ranks.lineage["weights"]["digest"] = "0" * 64
    assert printed_row(metrics(), ranks, CATALOG) is None


def test_no_row_stands_beside_another_split_or_data_set():
    assert printed_row(metrics("val_full"), ranks_of("FNE-SH"), CATALOG) is None
    assert printed_row(metrics(images=500), ranks_of("FNE-SH"), CATALOG) is None
    assert printed_row(metrics(), ranks_of("FNE-SH"), CATALOG[1:]) is None
