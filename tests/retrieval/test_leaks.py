from pathlib import Path
from typing import Any

import pytest

from fne.core.errors import InputError
from fne.retrieval.leaks import refuse_leaks
from fne.store.catalog import Captioned

CAPTIONS = Path("data/captions.jsonl")
CAPTIONED = [Captioned("a.jpg", "train", ("x",), ()), Captioned("b.jpg", "test", ("x",), ())]


def lineage(**settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    honest = {"vocabulary": {"vocabulary": ["train", "val"]}, "statistics": {"split": "train"}}
    return {name: {"digest": "", "settings": value} for name, value in (honest | settings).items()}


def test_an_honest_evaluation_is_let_through():
    refuse_leaks(lineage(), CAPTIONED, CAPTIONS)


def test_features_that_were_never_standardized_are_let_through():
    without = {name: entry for name, entry in lineage().items() if name != "statistics"}
    refuse_leaks(without, CAPTIONED, CAPTIONS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"vocabulary": {"vocabulary": ["train", "test"]}},
            "the vocabulary was made from captions of test, which leaks what is scored; set tokenize.vocabulary "
            "to train and val, and run `dvc repro`",
        ),
        (
            {"vocabulary": {}},
            "the vectors do not say which captions their vocabulary knows; run `dvc repro tokenize`",
        ),
        (
            {"statistics": {"split": "gallery"}},
            "the statistics were made from images of gallery, not of train, which leaks what is scored; "
            "run `dvc repro --force standardize`",
        ),
    ],
)
def test_what_knows_too_much_is_refused(settings, message):
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
