from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fne.core.errors import InputError
from fne.core.settings import load_section, parse_section
from fne.evaluation import protocols
from fne.evaluation.protocols import (
    NO_TEST,
    PROTOCOLS,
    TOO_HIGH,
    Evaluate,
    Protocol,
    choose_folds,
    metrics_name,
    refuse_leaks,
)
from fne.store.catalog import Captioned
from tests.support.imports import ROOT
from tests.support.refusals import refused


def split(count: int) -> list[Captioned]:
    """Images whose order in the data set is the reverse of that of their ids."""
    return [Captioned(f"{n:05d}.jpg", "test", ("x",), (), count - n) for n in range(count)]


def test_the_whole_split_keeps_the_order_of_the_catalog():
    chosen = split(7)
    other = Captioned("x.jpg", "val", ("x",), (), 0)
    assert choose_folds("full", [other, *chosen], "test") == [chosen]


@pytest.mark.parametrize(
    ("there", "asked", "hint"),
    [
        ("test", "val", "only in test; use `dvc exp run -S evaluate.split=test`"),
        ("val", "test", f"only in val; {NO_TEST}, or use `dvc exp run -S evaluate.split=val`, {TOO_HIGH}"),
        ("train", "test", "only in train; see `catalog` in params.yaml"),
    ],
)
def test_a_split_without_captions_is_refused_naming_those_that_have_some(there, asked, hint):
    with refused(f"params.yaml: evaluate.split is '{asked}', but the catalog has captions {hint}"):
        choose_folds("full", [replace(each, split=there) for each in split(2)], asked)


def test_a_catalog_without_captions_is_refused():
    with pytest.raises(InputError, match="has captions only in no split; see `catalog` in params.yaml"):
        choose_folds("full", [], "test")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("coco_1k_first", [1000]), ("coco_1k_mean5", [1000] * 5), ("coco_5k", [5000])],
)
def test_folds_are_consecutive_in_the_order_of_the_data_set(name, sizes):
    folds = choose_folds(name, split(5003), "test")
    assert [len(fold) for fold in folds] == sizes
    positions = [record.position for fold in folds for record in fold]
    assert positions == list(range(1, sum(sizes) + 1))


@pytest.mark.parametrize(
    ("name", "needed"), [("coco_1k_first", 1000), ("coco_1k_mean5", 5000), ("coco_5k", 5000)]
)
def test_a_split_that_is_too_small_is_refused_with_the_numbers(name, needed):
    with refused(
        f"params.yaml: evaluate.protocol is '{name}', which needs {needed} images, but split 'test' has 999; "
        "use `full`"
    ):
        choose_folds(name, split(999), "test")


def test_a_catalog_that_does_not_record_the_order_is_refused(monkeypatch):
    monkeypatch.setitem(protocols.PROTOCOLS, "coco_1k_first", Protocol(folds=1, images=1))
    with refused(
        "params.yaml: evaluate.protocol is 'coco_1k_first', but the catalog does not record the data set's order; "
        "run `dvc repro --force catalog`"
    ):
        choose_folds("coco_1k_first", [Captioned("a", "test", ("x",), ())], "test")


def test_metrics_are_named_by_their_split_and_protocol():
    assert [metrics_name("val", name) for name in PROTOCOLS] == [
        "val_full",
        "val_coco_1k_first",
        "val_coco_1k_mean5",
        "val_coco_5k",
    ]


CAPTIONS = Path("data/captions.jsonl")
CAPTIONED = [Captioned("a.jpg", "train", ("x",), ()), Captioned("b.jpg", "test", ("x",), ())]


def lineage(**settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    honest = {"vocabulary": {"vocabulary": ["train", "val"]}, "statistics": {"split": "train"}}
    return {name: {"digest": "", "settings": value} for name, value in (honest | settings).items()}


def test_an_evaluation_without_leaks_is_accepted():
    refuse_leaks(lineage(), CAPTIONED, CAPTIONS)


def test_features_that_were_never_standardized_are_accepted():
    without = {name: entry for name, entry in lineage().items() if name != "statistics"}
    refuse_leaks(without, CAPTIONED, CAPTIONS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"vocabulary": {"vocabulary": ["train", "test"]}},
            "the vocabulary was made from captions of test, which leaks the scored captions; set tokenize.vocabulary "
            "to train and val, and run `dvc repro`",
        ),
        (
            {"vocabulary": {}},
            "the vectors do not record the captions of their vocabulary; run `dvc repro tokenize`",
        ),
        (
            {"statistics": {"split": "gallery"}},
            "the statistics were made from images of gallery, not of train, which leaks the scored images; "
            "run `dvc repro --force standardize`",
        ),
    ],
)
def test_vectors_made_from_what_is_scored_are_refused(settings, message):
    with pytest.raises(InputError) as refusal:
        refuse_leaks(lineage(**settings), CAPTIONED, CAPTIONS)
    assert (refusal.value.message, refusal.value.exit_code) == (message, 2)


def test_a_photograph_of_flickr8k_in_train_and_of_flickr30k_in_test_is_refused():
    mixed = [
        Captioned("1000268201_693b08cb0e.jpg", "train", ("x",), ()),
        Captioned("1000268201.jpg", "test", ("x",), ()),
    ]
    with pytest.raises(InputError, match="are the same photograph of Flickr, one pair of 1; "):
        refuse_leaks(lineage(), mixed, CAPTIONS)


GOOD = {"split": "test", "protocol": "full", "recalls": [1, 5], "top": 3}


def test_the_shipped_section_is_valid():
    assert load_section(ROOT / "params.yaml", "evaluate", Evaluate).recalls == [1, 5, 10]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"recalls": [5, 1]}, "recalls: must be increasing, got [5, 1]"),
        ({"recalls": [1, 1]}, "recalls: must be increasing, got [1, 1]"),
        (
            {"protocol": "coco_1k"},
            "protocol: 'coco_1k' is not one of 'coco_1k_first', 'coco_1k_mean5', 'coco_5k', 'full'",
        ),
        ({"recalls": [0]}, "recalls: input should be greater than or equal to 1, got 0"),
        ({"recalls": []}, "recalls: list should have at least 1 item after validation, not 0, got []"),
    ],
)
def test_faults_are_named_with_their_values(changes, fault):
    assert parse_section({"evaluate": GOOD | changes}, "evaluate", Evaluate) == (None, [fault])
