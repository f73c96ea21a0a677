from dataclasses import replace

import pytest

from fne.core.errors import InputError
from fne.retrieval import protocols
from fne.retrieval.protocols import PROTOCOLS, Protocol, choose_folds, metrics_name
from fne.store.catalog import Captioned


def split(count: int) -> list[Captioned]:
    """Images whose order in the data set is the reverse of that of their ids."""
    return [Captioned(f"{n:05d}.jpg", "test", ("x",), (), count - n) for n in range(count)]


def test_the_whole_split_keeps_the_order_of_the_catalog():
    chosen = split(7)
    other = Captioned("x.jpg", "val", ("x",), (), 0)
    assert choose_folds("full", [other, *chosen], "test") == [chosen]


@pytest.mark.parametrize(
    ("there", "asked", "told"),
    [
        ("test", "val", "only in test; use `dvc exp run -S evaluate.split=test`"),
        ("val", "test", "only in val; use `dvc exp run -S evaluate.split=val`"),
        ("train", "test", "only in train; see `catalog` in params.yaml"),
    ],
)
def test_a_split_without_captions_is_refused_with_what_there_is(there, asked, told):
    with pytest.raises(InputError) as refusal:
        choose_folds("full", [replace(each, split=there) for each in split(2)], asked)
    assert refusal.value.message == (
        f"params.yaml: evaluate.split is '{asked}', but the catalog has captions {told}"
    )


def test_a_catalog_without_captions_is_refused():
    with pytest.raises(InputError, match="has captions only in no split; see `catalog` in params.yaml"):
        choose_folds("full", [], "test")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("coco_1k_first", [1000]), ("coco_1k_mean5", [1000] * 5), ("coco_5k", [5000])],
)
def test_folds_follow_each_other_in_the_order_of_the_data_set(name, sizes):
    folds = choose_folds(name, split(5003), "test")
    assert [len(fold) for fold in folds] == sizes
    positions = [record.position for fold in folds for record in fold]
    assert positions == list(range(1, sum(sizes) + 1))


@pytest.mark.parametrize(
    ("name", "needed"), [("coco_1k_first", 1000), ("coco_1k_mean5", 5000), ("coco_5k", 5000)]
)
def test_a_split_that_is_too_small_is_refused_with_the_numbers(name, needed):
    with pytest.raises(InputError) as refusal:
        choose_folds(name, split(999), "test")
    assert refusal.value.message == (
        f"params.yaml: evaluate.protocol is '{name}', which needs {needed} images, but split 'test' has 999; "
        "use `full`"
    )
    assert refusal.value.exit_code == 2


def test_a_catalog_that_does_not_know_the_order_is_refused(monkeypatch):
    monkeypatch.setitem(protocols.PROTOCOLS, "coco_1k_first", Protocol(folds=1, images=1))
    with pytest.raises(InputError) as refusal:
        choose_folds("coco_1k_first", [Captioned("a", "test", ("x",), ())], "test")
    assert refusal.value.message == (
        "params.yaml: evaluate.protocol is 'coco_1k_first', but the catalog does not tell the data set's order; "
        "run `dvc repro --force catalog`"
    )


def test_metrics_are_named_by_their_split_and_protocol():
    assert [metrics_name("val", name) for name in PROTOCOLS] == [
        "val_full",
        "val_coco_1k_first",
        "val_coco_1k_mean5",
        "val_coco_5k",
    ]
