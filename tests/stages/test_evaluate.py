import json
from dataclasses import replace
from pathlib import Path

import pytest

import stages.evaluate
from fne.retrieval import protocols
from fne.retrieval.protocols import Protocol
from fne.store.arrays import read_arrays
from fne.store.catalog import read_captions, write_captions
from fne.store.lineage import merge
from tests.projects import change_params
from tests.stages.conftest import IDS, SPLITS, metrics, write_catalog

READY = ("standardize", "embed", "tokenize", "train", "encode")


@pytest.mark.parametrize("split", ["test", "val"])
def test_metrics_are_named_by_their_split_and_protocol(run, split):
    change_params(Path(), {"evaluate": {"split": split}})
    assert run(*READY, "evaluate").exit_code == 0
    [(name, found)] = metrics().items()
    assert name == f"{split}_full"
    assert (found["images"], found["captions"]) == (4, 8)
    assert found["text_to_image"]["R@5"] == 100


def test_ranks_and_the_best_are_kept_for_every_query(run):
    change_params(Path(), {"evaluate": {"top": 3}})
    run(*READY, "evaluate")
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert ranks["image_best"].shape == (4, 3)
    assert ranks["caption_best"].shape == (8, 3)
    assert ranks["caption_image"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(ranks["image_ranks"].tolist()) <= set(range(1, 9))


def test_a_split_without_captions_is_refused_with_what_to_type(run):
    write_catalog([split.replace("test", "val") for split in SPLITS])
    result = run(*READY, "evaluate")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: evaluate.split is 'test', but the catalog has captions only in train, val; "
        "use `dvc exp run -S evaluate.split=val`\n",
    )


def test_vectors_of_different_models_are_refused(run, tmp_path):
    run(*READY)
    images = Path("vectors/images").rename(tmp_path / "aside")
    change_params(Path(), {"train": {"seed": 1}})
    run("train", "encode")
    for file in Path("vectors/images").iterdir():
        file.unlink()
    Path("vectors/images").rmdir()
    images.rename("vectors/images")
    result = run("evaluate")
    assert result.exit_code == 2
    assert "Error: vectors/images was made from model " in result.stderr


def test_other_recalls_make_other_metrics_and_their_sum(run):
    change_params(Path(), {"evaluate": {"recalls": [2, 3]}})
    assert run(*READY, "evaluate").exit_code == 0
    found = metrics()["test_full"]
    names = ["R@2", "R@3", "median_rank", "mean_rank"]
    assert list(found["image_to_text"]) == list(found["text_to_image"]) == names
    both = [found[way][name] for way in ("image_to_text", "text_to_image") for name in names[:2]]
    assert found["rsum"] == pytest.approx(sum(both))


def test_intervals_stand_in_a_file_of_their_own_and_hold_the_metrics(run):
    run(*READY, "evaluate")
    found, sure = metrics()["test_full"], json.loads(Path("metrics/intervals.json").read_text())["test_full"]
    assert (sure["level"], sure["samples"]) == (0.95, 1000)
    low, high = sure["rsum"]
    assert low <= found["rsum"] <= high
    for way in ("image_to_text", "text_to_image"):
        assert sure[way].keys() == found[way].keys()
        for name, (low, high) in sure[way].items():
            assert low <= found[way][name] <= high


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


def test_a_split_too_small_for_a_protocol_is_refused_with_the_numbers(run):
    change_params(Path(), {"evaluate": {"protocol": "coco_5k"}})
    result = run(*READY, "evaluate")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: evaluate.protocol is 'coco_5k', which needs 5000 images, but split 'test' has 4; "
        "use `full`\n",
    )


def test_a_model_is_not_evaluated_on_another_data_set_than_the_one_it_was_trained_on(run):
    """So that none of its training images can be among those scored: Flickr8k is inside Flickr30k."""
    run(*READY)
    write_catalog(["test"] * 4 + ["train"] * 12 + ["val"] * 4)
    for stage in ("encode", "evaluate"):
        result = run(stage)
        assert result.exit_code == 2
        assert " was made from captions " in result.stderr
        assert result.stderr.endswith("; run `dvc repro`\n")


@pytest.mark.parametrize("started", [0, 1, None])
def test_whether_training_got_off_the_ground_is_told_if_the_model_says_so(run, monkeypatch, started):
    def merge_with_started(*artifacts):
        lineage = merge(*artifacts)
        lineage["model"]["settings"] = {
            name: value for name, value in lineage["model"]["settings"].items() if name != "started"
        } | ({} if started is None else {"started": started})
        return lineage

    run(*READY)
    monkeypatch.setattr(stages.evaluate, "merge", merge_with_started)
    assert run("evaluate").exit_code == 0
    assert metrics()["test_full"].get("started") == started
