from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.store.photos import refuse_shared_photos, shared_photos

EIGHT, THIRTY = "1000268201_693b08cb0e.jpg", "1000268201.jpg"


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (EIGHT, THIRTY),
        (EIGHT, f"flickr30k-images/{THIRTY}"),
        (f"8k/{EIGHT}", f"8k_again/{EIGHT}"),
        ("1000268201_693b08cb0e_b.JPG", "1000268201.JPEG"),
    ],
)
def test_one_photograph_in_two_splits_is_found_by_its_number(first, other):
    assert shared_photos({first: "train", other: "test"}) == [tuple(sorted([first, other]))]


@pytest.mark.parametrize(
    "splits",
    [
        {EIGHT: "train", THIRTY: "train"},  # the same split
        {EIGHT: "gallery", THIRTY: "test"},  # never trained on or scored
        {EIGHT: "train", "1000268202.jpg": "test"},  # another photograph
        {"a/000123.jpg": "train", "b/000123.jpg": "test"},  # numbers of some other data set
        {"val2014/COCO_val2014_000000391895.jpg": "train", "391895.jpg": "test"},
        {},
    ],
)
def test_other_names_are_not_taken_for_the_same_photograph(splits):
    assert shared_photos(splits) == []


def test_the_refusal_names_a_pair_its_splits_and_how_many_there_are():
    splits = {EIGHT: "train", THIRTY: "test", "22222_0123456789.jpg": "val", "22222.jpg": "test"}
    with pytest.raises(InputError) as refusal:
        refuse_shared_photos(Path("data/captions.jsonl"), splits)
    assert refusal.value.message == (
        "data/captions.jsonl: '1000268201.jpg' (test) and '1000268201_693b08cb0e.jpg' (train) are the same "
        "photograph of Flickr, one pair of 2; Flickr8k is part of Flickr30k: put both in the same split, or "
        "leave one out"
    )
    refuse_shared_photos(Path("data/captions.jsonl"), {EIGHT: "test", THIRTY: "test"})
