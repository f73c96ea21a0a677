from collections import Counter
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.datasets.records import Record
from fne.datasets.splits import DROPPED, Splitting, draw_splits, resolve_splits

IDS = [f"{number}.jpg" for number in range(50)]


def splitting(restval="drop", seed=0):
    return Splitting(restval, 0.1, 0.2, seed)


def record(name, split):
    return Record(name, split, ("A dog",), (), Path("table.csv"), "line 2")


def test_shares_are_exact_and_the_order_of_the_data_set_does_not_matter():
    drawn = draw_splits(IDS, splitting())
    assert Counter(drawn.values()) == {"train": 35, "val": 5, "test": 10}
    assert draw_splits(IDS[::-1], splitting()) == drawn


def test_another_seed_draws_other_splits():
    assert draw_splits(IDS, splitting(seed=1)) != draw_splits(IDS, splitting(seed=0))


def test_the_draw_never_changes_from_version_to_version():
    drawn = draw_splits(IDS[:10], splitting())
    assert sorted(name for name, split in drawn.items() if split != "train") == ["2.jpg", "8.jpg", "9.jpg"]


def test_restval_is_dropped_and_counted_or_joins_train():
    records = [record("a", "train"), record("b", "restval")]
    splits, counts = resolve_splits(records, {"a", "b"}, splitting("drop"))
    assert (splits, counts) == ({"a": "train"}, {DROPPED: 1})
    splits, counts = resolve_splits(records, {"a", "b"}, splitting("train"))
    assert (splits, counts) == ({"a": "train", "b": "train"}, {DROPPED: 0})


def test_images_without_usable_captions_go_to_the_gallery_and_take_no_share():
    records = [record(name, None) for name in IDS]
    splits, _ = resolve_splits(records, set(IDS[:20]), splitting())
    assert Counter(splits.values()) == {"train": 14, "val": 2, "test": 4, "gallery": 30}


def test_splits_for_some_images_only_are_an_error():
    with pytest.raises(InputError) as caught:
        resolve_splits([record("a", "train"), record("b", None)], {"a", "b"}, splitting())
    assert caught.value.message == (
        "table.csv: 1 of 2 images have no split (first 'b', line 2); give all of them a split, or none"
    )
