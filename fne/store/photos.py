"""Photographs that two data sets share, told by their names.

Flickr8k is contained in Flickr30k: `1000268201_693b08cb0e.jpg` of the one is
`1000268201.jpg` of the other, and the files need not be equal. The number is that of
the photograph at Flickr. A bare number may mean anything in other data sets, so it counts
only where the same number also stands in a name of Flickr8k's form.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from fne.core.errors import InputError

_FLICKR8K = re.compile(r"(\d{5,})_[0-9a-f]{8,10}(?:_[a-z])?\.jpe?g", re.IGNORECASE)
_FLICKR30K = re.compile(r"(\d{5,})\.jpe?g", re.IGNORECASE)


def refuse_shared_photos(place: Path, splits: Mapping[str, str]) -> None:
    """Refuse a catalog in which one photograph stands in two splits under two names.

    Raises:
        InputError: naming the first pair, and how many there are.
    """
    pairs = shared_photos(splits)
    if pairs:
        first, other = (f"{each!r} ({splits[each]})" for each in pairs[0])
        raise InputError(
            f"{place}: {first} and {other} are the same photograph of Flickr, one pair of "
            f"{len(pairs)}; Flickr8k is part of Flickr30k: put both in the same split, or leave one out"
        )


def shared_photos(splits: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return pairs of image ids that name one photograph but stand in different splits.

    Args:
        splits: the split of each image by its id; the gallery, which is never trained on or scored,
            does not count.

    Example:
        >>> shared_photos({"a/1000268201_693b08cb0e.jpg": "train", "b/1000268201.jpg": "test"})
        [('a/1000268201_693b08cb0e.jpg', 'b/1000268201.jpg')]
    """
    by_number: defaultdict[str, list[str]] = defaultdict(list)
    for identity in sorted(splits):
        name = identity.rpartition("/")[2]
        match = _FLICKR8K.fullmatch(name) or _FLICKR30K.fullmatch(name)
        if match and splits[identity] != "gallery":
            by_number[match[1]].append(identity)
    return [
        (first, other)
        for same in by_number.values()
        for first, other in pairwise(same)
        if splits[first] != splits[other]
        and any(_FLICKR8K.fullmatch(each.rpartition("/")[2]) for each in same)
    ]
