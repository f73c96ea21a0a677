from dataclasses import replace

import pytest

from fne.paper import rule
from fne.paper.data import load
from fne.paper.measured import Measured
from fne.paper.rule import Method, belongs, dataset_of, described, equals, methods
from tests.paper.made import CAFFE, EXTRACT, FLICKR8K, NUMBERS, ranks, run
from tests.paper.samples import sections


@pytest.fixture(autouse=True)
def known_weights(monkeypatch):
    """Pretend that the team has listed its conversion of Caffe's weights."""
    listed = {"weights": {"backbone": "vgg16", "sha256": [CAFFE]}}
    monkeypatch.setattr(rule, "load", lambda name: listed.get(name) or load(name))


def test_a_run_that_is_the_papers_in_every_respect_stands_in_its_row():
    assert belongs(run(), "flickr8k") == Method("FNE-SH", "flickr8k", "paper")
    assert belongs(run(following="code"), "flickr8k") == Method("FNE-SH", "flickr8k", "code")
    assert belongs(run("FC7-POE", seed=4), "flickr8k") == Method("FC7-POE", "flickr8k", "paper")


@pytest.mark.parametrize(
    "other",
    [
        run(stored=ranks(weights="d" * 64)),
        run(stored=ranks(weights="d" * 64, kind="random")),
        run(stored=ranks(weights="d" * 64, kind="torchvision")),
        run(stored=ranks(extract=EXTRACT | {"backbone": "vgg19"})),
        run(stored=ranks(extract=EXTRACT | {"crops": "center"})),
        run(stored=ranks(extract=EXTRACT | {"activations": "pre_relu"})),
        replace(run(), ranks=None),
        run(counts=None),
        run(counts=FLICKR8K | {"train": (5999, 29995)}),
        run(counts=FLICKR8K | {"val": (500, 2500)}),
        run(measured=Measured("val", "full", NUMBERS, 1000, 5000)),
        run(measured=Measured("test", "coco_1k_first", NUMBERS, 1000, 5000)),
        run(measured=Measured("test", "full", NUMBERS, 999, 4995)),
        run(measured=Measured("test", "full", (None, *NUMBERS[1:]), 1000, 5000)),
        run(embed_dim=1024),
        run(epochs=199),
        run(hardest="candidate"),
        run(dataset="demo"),
    ],
    ids=lambda other: described(other),
)
def test_a_run_that_differs_in_one_respect_does_not(other):
    assert belongs(other, "flickr8k") is None


def test_features_that_were_imported_are_not_the_papers():
    imported = ranks()
    del imported.artifact.lineage["activations"]["settings"]["extractor"]
    assert belongs(run(stored=imported), "flickr8k") is None


def test_features_that_were_imported_are_called_by_their_file_whatever_the_extraction_is_set_to():
    imported = ranks()
    del imported.artifact.lineage["weights"]
    imported.artifact.lineage["activations"]["settings"] = {"source": "inception.h5", "sha256": "f" * 64}
    other = run(stored=imported)
    assert described(other) == "FNE-SH, features of inception.h5, Flickr8k, 1,000 test images"
    assert belongs(other, "flickr8k") is None


def test_a_run_of_another_pipeline_has_a_description_too():
    assert described(replace(run(), settings={})).startswith("unknown settings, ")


def test_chosen_layers_are_not_all_layers():
    fewer = run()
    fewer.settings["embed"]["layers"] = ["fc6", "fc7"]
    assert belongs(fewer, "flickr8k") is None
    assert described(fewer).startswith("fne (fc6+fc7) sum_hinge cosine 1536/1024, ")


def test_a_run_of_another_data_set_is_not_in_this_ones_table():
    flickr30k = {"train": (29000, 145000), "val": (1014, 5070), "test": (1000, 5000)}
    assert dataset_of(run(counts=flickr30k)) == "flickr30k"
    assert belongs(run(counts=flickr30k), "flickr8k") is None
    # Both data sets have the same settings for this method.
    assert belongs(run("FNE-SOE", counts=flickr30k), "flickr30k").name == "FNE-SOE"


def test_coco_is_known_by_its_training_images_with_few_or_many_test_images():
    scored = Measured("test", "coco_1k_first", NUMBERS, 1000, 5007)
    counts = {"train": (82783, 414113), "val": (5000, 25000), "test": (5000, 25010)}
    assert belongs(run(dataset="coco", counts=counts, measured=scored), "coco").name == "FNE-SH"
    whole = Measured("test", "full", NUMBERS, 5000, 25010)
    assert belongs(run(dataset="coco", counts=counts, measured=whole), "coco") is None
    more = counts | {"train": (113287, 566747)}
    assert belongs(run(dataset="coco", counts=more, measured=scored), "coco") is None


def test_one_value_and_a_list_of_equal_values_are_the_same_setting():
    settings = sections("FNE-PH", "flickr8k")
    settings["train"] |= {"margin": [0.2, 0.2], "epochs": [200, 200], "learning_rate": [0.0002]}
    assert [method.name for method in methods(settings) if method.dataset == "flickr8k"] == ["FNE-PH"]
    settings["train"]["margin"] = [0.2, 0.1]
    assert list(methods(settings)) == []


def test_a_setting_that_was_not_recorded_is_not_equal():
    settings = sections("FNE-SH", "flickr8k")
    del settings["train"]["hardest"]
    assert not equals(
        settings, {f"train.{key}": value for key, value in sections("FNE-SH", "flickr8k")["train"].items()}
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            run(dataset="demo", root="data/demo", counts={"train": (12, 60)}, stored=ranks("d", "random"),
                measured=Measured("test", "full", NUMBERS, 30, 150)),
            "FNE-SH, random weights, demo, 30 test images",
        ),
        (
            run(following="code", stored=ranks("d", "torchvision")),
            "FNE-SH, following the code, torchvision's IMAGENET1K_V1, Flickr8k, 1,000 test images",
        ),
        (
            run(embed_dim=7, counts={"train": (12, 60)}, stored=ranks("d" * 64)),
            "fne sum_hinge cosine 7/1024, weights vgg.pth dddddddd…, 12 training images, 1,000 test images",
        ),
        (
            replace(run(), ranks=None, counts=None),
            "FNE-SH, vgg16 with vgg.pth, a data set that is no longer here, 1,000 test images",
        ),
    ],
)  # fmt: skip
def test_a_run_without_a_row_says_what_it_is(other, words):
    assert described(other) == words
