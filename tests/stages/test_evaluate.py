import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import stages.evaluate
from fne.evaluation import protocols
from fne.evaluation.protocols import Protocol
from fne.evaluation.score_retrieval import Evaluation
from fne.store.arrays import read_arrays
from fne.store.catalog import read_captions, write_captions
from fne.store.lineage import recorded_lineage
from tests.support.projects import change_params
from tests.support.stages import IDS, SPLITS, metrics, refusal, write_catalog

READY = ("standardize", "embed", "tokenize", "train", "encode")


@pytest.mark.parametrize("split", ["test", "val"])
def test_metrics_are_named_by_their_split_and_protocol(encoded, split):
    change_params(Path(), {"evaluate": {"split": split}})
    result = encoded("evaluate")
    assert result.exit_code == 0
    assert ("Warning: these images chose the epoch" in result.stderr) == (split == "val")
    [(name, found)] = metrics().items()
    assert name == f"{split}_full"
    assert (found["images"], found["captions"]) == (4, 8)
    assert found["text_to_image"]["R@5"] == 100


def test_a_split_without_captions_is_refused_with_what_to_type(run):
    write_catalog([split.replace("test", "val") for split in SPLITS])
    message = refusal(*READY, "evaluate")
    assert "evaluate.split is 'test', but the catalog has captions only in train, val" in message
    assert "`-S ++catalog.test_from_train=0.1`" in message
    assert "`dvc exp run -S evaluate.split=val`" in message


def test_vectors_of_different_models_are_refused(encoded):
    Path("vectors/images").rename("aside")
    change_params(Path(), {"train": {"seed": 1}})
    encoded("train", "encode")
    shutil.rmtree("vectors/images")
    Path("aside").rename("vectors/images")
    assert "vectors/images was made from model " in refusal("evaluate")


def test_other_recalls_make_other_metrics_and_their_sum(encoded):
    change_params(Path(), {"evaluate": {"recalls": [2, 3]}})
    assert encoded("evaluate").exit_code == 0
    found = metrics()["test_full"]
    names = ["R@2", "R@3", "median_rank", "mean_rank"]
    assert list(found["image_to_text"]) == list(found["text_to_image"]) == names
    both = [found[way][name] for way in ("image_to_text", "text_to_image") for name in names[:2]]
    assert found["rsum"] == pytest.approx(sum(both))


def test_ranks_intervals_curves_and_chance_agree_with_the_metrics(encoded):
    change_params(Path(), {"evaluate": {"top": 3}})
    result = encoded("evaluate")
    found, sure = metrics()["test_full"], json.loads(Path("metrics/intervals.json").read_text())["test_full"]
    assert (sure["level"], sure["samples"]) == (0.95, 1000)
    assert sure["rsum"]["low"] <= found["rsum"] <= sure["rsum"]["high"]
    for way in ("image_to_text", "text_to_image"):
        assert sure[way].keys() == found[way].keys()
        for name, bounds in sure[way].items():
            assert bounds["low"] <= found[way][name] <= bounds["high"]
    # Four images with two captions each: R@5 and R@10 are nearly certain.
    assert found["chance"] == pytest.approx(25 + 100 * (1 - 3 / 28) + 100 + 25 + 100 + 100)
    assert result.stdout.splitlines()[-1].endswith(f"), chance {found['chance']:.1f}")
    assert f"Warning: among 4 images chance scores {found['chance']:.1f} of 600, so the sum" in result.stderr
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert (ranks["image_best"].shape, ranks["caption_best"].shape) == ((4, 3), (8, 3))
    assert ranks["caption_image"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    recall, percents = (
        [line.split("\t") for line in Path(f"metrics/curves/{name}.tsv").read_text().splitlines()]
        for name in ("recall", "ranks")
    )
    assert recall[0][1:] == percents[0][1:] == ["image_to_text", "text_to_image"]
    for k in (1, 5):
        values = [float(each) for each in recall[k][1:]]
        assert values == pytest.approx([found[way][f"R@{k}"] for way in recall[0][1:]])
    assert [line[0] for line in percents[1:]] == [str(percent) for percent in range(1, 101)]
    worst = [str(ranks[name].max()) for name in ("image_ranks", "caption_ranks")]
    assert percents[-1] == ["100", *worst]


def catalog_with_positions(positions: list[int]) -> None:
    """Images in another order than that of their ids, as a data set may list them."""
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    placed = [replace(each, position=place) for each, place in zip(captioned, positions, strict=True)]
    write_captions(Path("data/captions.jsonl"), placed)


def test_a_protocol_takes_the_first_images_in_the_data_sets_order_and_names_its_metrics(run, monkeypatch):
    monkeypatch.setitem(protocols.PROTOCOLS, "coco_1k_mean5", Protocol(folds=2, images=1))
    change_params(Path(), {"evaluate": {"protocol": "coco_1k_mean5"}})
    catalog_with_positions(list(range(len(IDS)))[::-1])
    assert run(*READY, "evaluate").exit_code == 0
    found = metrics()
    assert list(found) == ["test_coco_1k_mean5"]
    assert found["test_coco_1k_mean5"]["images"] == 2
    assert found["test_coco_1k_mean5"]["rsum"] == 600  # one image a fold: nothing to confuse it with
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert ranks.texts("image_ids") == [IDS[-1], IDS[-2]]
    assert ranks["folds"].tolist() == [0, 1]
    settings = ranks.artifact.settings
    assert (settings["split"], settings["protocol"]) == ("test", "coco_1k_mean5")
    assert settings["name"] == "test_coco_1k_mean5"


def test_a_model_is_not_evaluated_on_another_data_set_than_the_one_it_was_trained_on(encoded):
    """So that none of its training images can be among those scored: Flickr8k is inside Flickr30k."""
    write_catalog(["test"] * 4 + ["train"] * 12 + ["val"] * 4)
    for stage in ("encode", "evaluate"):
        message = refusal(stage)
        assert " was made from captions " in message
        assert message.endswith("; run `dvc repro`")


@pytest.mark.parametrize(
    ("in_validation", "in_test", "expected"),
    [(False, False, False), (False, True, True), (True, False, True), (None, True, None)],
)
def test_a_run_did_not_start_if_validation_and_test_are_both_low(
    encoded, monkeypatch, in_validation, in_test, expected
):
    def lineage_with_started(*artifacts):
        lineage = recorded_lineage(*artifacts)
        lineage["model"]["settings"].pop("started", None)
        if in_validation is not None:
            lineage["model"]["settings"]["started"] = in_validation
        return lineage

    monkeypatch.setattr(stages.evaluate, "recorded_lineage", lineage_with_started)
    monkeypatch.setattr(Evaluation, "has_started", lambda _: in_test)
    assert encoded("evaluate").exit_code == 0
    assert metrics()["test_full"].get("started") == expected
