from dataclasses import replace

import pytest

from fne.core.settings import put
from fne.experiments import comparable
from fne.experiments.comparable import dataset_of, describe, find_methods, matches_preset, matching_methods
from fne.experiments.effective_settings import settings_of
from fne.experiments.presets import datasets, every_preset, load
from fne.experiments.runs import Result
from tests.support.paper_runs import CAFFE, EXTRACT, FLICKR8K, NUMBERS, ranks, run
from tests.support.paper_tables import sections


@pytest.fixture(autouse=True)
def _caffe_weights_are_listed(monkeypatch):
    """List the digest of the Caffe weights that these runs have."""
    listed = {"weights": {"backbone": "vgg16", "sha256": [CAFFE]}}

    def load_listed(name, paper="fne"):
        return (paper == "fne" and listed.get(name)) or load(name, paper)

    monkeypatch.setattr(comparable, "load", load_listed)


def find_method(run, dataset, paper="fne"):
    """Return the name of the first method that a run belongs to."""
    found = find_methods(run, dataset, paper)
    return found[0].name if found else None


def test_a_run_that_matches_the_paper_in_all_respects_belongs_to_its_row():
    for name, following in (("FNE-SH", "paper"), ("FNE-SH", "code"), ("FC7-POE", "paper")):
        [found] = find_methods(run(name, following=following, seed=4), "flickr8k")
        assert (found.name, found.dataset, found.following) == (name, "flickr8k", following)


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
        run(result=Result("val", "full", NUMBERS, 1000, 5000, 3.2)),
        run(result=Result("test", "coco_1k_first", NUMBERS, 1000, 5000, 3.2)),
        run(result=Result("test", "full", NUMBERS, 999, 4995, 3.2)),
        run(result=Result("test", "full", (None, *NUMBERS[1:]), 1000, 5000, 3.2)),
        run(embed_dim=1024),
        run(epochs=199),
        run("FNE-MH", **{"max_hinge.hardest": "candidate"}),
        run(dataset="demo"),
    ],
    ids=lambda other: describe(other),
)
def test_a_run_that_differs_in_one_respect_belongs_to_no_row(other):
    assert find_method(other, "flickr8k") is None


def test_imported_vectors_of_both_sides_are_a_row_of_their_own():
    trained = run()
    stores = {"images": "features/imported", "captions": "features/imported_captions"}
    other = replace(trained, settings={"catalog": trained.settings["catalog"], "imported": stores})
    assert find_method(other, "flickr8k") is None
    assert describe(other).startswith("imported, not trained here: features/imported and features/imported_")
    assert other.experiment != trained.experiment


def test_imported_features_are_described_by_their_file_and_belong_to_no_row():
    imported = ranks()
    del imported.artifact.lineage["activations"]["settings"]["extractor"]
    assert find_method(run(stored=imported), "flickr8k") is None
    del imported.artifact.lineage["weights"]
    imported.artifact.lineage["activations"]["settings"] = {"source": "inception.h5", "sha256": "f" * 64}
    other = run(stored=imported)
    assert describe(other) == "FNE-SH, features of inception.h5, Flickr8k, 1,000 test images"
    assert find_method(other, "flickr8k") is None


def test_a_run_of_another_pipeline_has_a_description():
    assert describe(replace(run(), settings={})).startswith("unknown settings, ")


def test_a_run_with_some_layers_does_not_match_one_with_all_layers():
    fewer = run()
    fewer.settings["embed"]["layers"] = ["fc6", "fc7"]
    assert find_method(fewer, "flickr8k") is None
    assert describe(fewer).startswith("fne (fc6+fc7) sum_hinge cosine 1536/1024, ")


def test_a_run_belongs_only_to_the_table_of_its_data_set():
    flickr30k = {"train": (29000, 145000), "val": (1014, 5070), "test": (1000, 5000)}
    assert dataset_of(run(counts=flickr30k)) == "flickr30k"
    assert find_method(run(counts=flickr30k), "flickr8k") is None
    # Both data sets have the same settings for this method.
    assert find_method(run("FNE-SOE", counts=flickr30k), "flickr30k") == "FNE-SOE"


def test_coco_is_recognized_by_its_training_images_and_needs_the_first_1000_test_images():
    scored = Result("test", "coco_1k_first", NUMBERS, 1000, 5007, 3.2)
    counts = {"train": (82783, 414113), "val": (5000, 25000), "test": (5000, 25010)}
    assert find_method(run(dataset="coco", counts=counts, result=scored), "coco") == "FNE-SH"
    all_images = Result("test", "full", NUMBERS, 5000, 25010, 0.6)
    assert find_method(run(dataset="coco", counts=counts, result=all_images), "coco") is None
    more = counts | {"train": (113287, 566747)}
    assert find_method(run(dataset="coco", counts=more, result=scored), "coco") is None


def test_a_value_and_a_list_of_equal_values_are_the_same_setting():
    settings = sections("FNE-PH", "flickr8k")
    settings["train"] |= {"margin": [0.2, 0.2], "epochs": [200, 200], "learning_rate": [0.0002]}
    assert {each.name for each in matching_methods(settings) if each.dataset == "flickr8k"} == {"FNE-PH"}
    settings["train"]["margin"] = [0.2, 0.1]
    assert list(matching_methods(settings)) == []


def test_a_setting_that_was_not_recorded_does_not_match():
    settings = sections("FNE-SH", "flickr8k")
    wanted = {f"train.{key}": value for key, value in settings["train"].items()}
    assert matches_preset(settings, wanted)
    del settings["train"]["margin"]
    assert not matches_preset(settings, wanted)


@pytest.mark.parametrize(
    ("other", "description"),
    [
        (
            run(dataset="demo", root="data/demo", counts={"train": (12, 60)}, stored=ranks("d", "random"),
                result=Result("test", "full", NUMBERS, 30, 150, 102.0)),
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
            "FNE-SH, vgg16 with vgg.pth, unknown data set, 1,000 test images",
        ),
    ],
)  # fmt: skip
def test_a_run_without_a_row_is_described(other, description):
    assert describe(other) == description


def test_a_key_of_a_loss_that_was_not_chosen_is_not_recorded_and_does_not_matter():
    settings = sections("FNE-SH", "flickr8k")
    assert settings["train"].pop("max_hinge.hardest") == "query"
    assert "FNE-SH" in [each.name for each in matching_methods(settings)]
    assert run("FNE-MH", **{"max_hinge.hardest": "candidate"}).experiment != run("FNE-MH").experiment


@pytest.mark.parametrize("dataset", datasets())
def test_the_settings_that_a_preset_makes_match_it(dataset):
    """They are recorded as they apply: lists of one value, and no blocks of other variants."""
    for each in every_preset():
        if each.dataset == dataset:
            content = {}
            for key, value in each.overrides.items():
                put(content, key, value)
            settings = settings_of(content, "params.yaml")
            assert matches_preset(settings, each.overrides, scoring=True), each.name


ENTITIES = {"train": (29783, 148915), "val": (1000, 5000), "test": (1000, 5000)}


def two_branch(**changes):
    """Return a run of a two-branch system that matches the paper in all respects, except for `changes`."""
    extract = EXTRACT | {"backbone": "vgg19", "resize": "shorter_side"}
    stored = ranks(extract=extract)
    stored.artifact.lineage["vector_file"] = {"digest": "v" * 64, "settings": {"file": "glove.txt"}}
    usual = {
        "dataset": "flickr30k",
        "counts": ENTITIES,
        "split_digests": load("datasets", "two-branch")["flickr30k"]["ids"],
        "stored": stored,
        "extract": extract,
    }
    return run("two-branch/VGG19-K10", **(usual | changes))


def test_a_run_of_another_paper_belongs_to_its_row(monkeypatch):
    assert find_method(two_branch(), "flickr30k", "two-branch") is None
    monkeypatch.setitem(load("weights", "two-branch"), "sha256", [CAFFE])
    assert find_method(two_branch(), "flickr30k", "two-branch") is None  # unknown word vectors
    monkeypatch.setitem(load("weights", "two-branch"), "vectors", ["v" * 64])
    assert find_method(two_branch(), "flickr30k", "two-branch") == "two-branch/VGG19-K10"
    assert find_method(two_branch(), "flickr30k") is None
    assert find_method(two_branch(split_digests={}), "flickr30k", "two-branch") is None


@pytest.mark.parametrize("test_images", [1000, 5000])
def test_a_run_on_coco_belongs_to_its_row_with_a_thousand_images_each(test_images, monkeypatch):
    monkeypatch.setitem(load("weights", "two-branch"), "sha256", [CAFFE])
    monkeypatch.setitem(load("weights", "two-branch"), "vectors", ["v" * 64])
    scored = Result("test", "coco_1k_first", NUMBERS, 1000, 5010, 3.2)
    splits = {"train": (113287, 566747), "val": (1000, 5007), "test": (test_images, 5 * test_images)}
    on_coco = {"dataset": "coco", "counts": splits, "split_digests": {}, "result": scored}
    assert find_method(two_branch(**on_coco), "coco", "two-branch") == "two-branch/VGG19-K10"
    for other in (
        {"counts": splits | {"val": (5000, 25010)}},
        {"result": replace(scored, protocol="coco_5k")},
    ):
        assert find_method(two_branch(**(on_coco | other)), "coco", "two-branch") is None


def test_equal_numbers_of_other_images_are_another_data_set():
    flickr8k_lists = load("datasets")["flickr8k"]["ids"]
    assert dataset_of(two_branch(), "two-branch") == "flickr30k"
    assert dataset_of(two_branch(split_digests=flickr8k_lists), "two-branch") is None
    assert dataset_of(two_branch(split_digests=None), "two-branch") is None
    assert dataset_of(run(split_digests={"val": "0" * 64, "test": "0" * 64})) is None
