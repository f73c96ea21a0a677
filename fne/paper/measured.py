"""What `metrics/retrieval.json` says about a run: the one place that knows its layout."""

import json
from dataclasses import dataclass

from fne.paper.tables import Numbers

DIRECTIONS = ("image_to_text", "text_to_image")
KEYS = ("R@1", "R@5", "R@10", "median_rank")


@dataclass(frozen=True)
class Measured:
    """The numbers of one split under one protocol, and what was scored; None for what was not."""

    split: str
    protocol: str
    numbers: Numbers
    images: int
    captions: int


def measured(content: bytes) -> list[Measured]:
    """Return the results of a metrics file.

    They stand under the name of their split and that of the protocol: `test_full`, `test_coco_1k_first`.
    What names no protocol was measured in a way that is not known, and is left out.
    """
    found = []
    for name, results in json.loads(content).items():
        split, _, protocol = name.partition("_")
        if not protocol:
            continue
        numbers = tuple(results[direction].get(key) for direction in DIRECTIONS for key in KEYS)
        found.append(Measured(split, protocol, numbers, results["images"], results["captions"]))
    return found


def started(content: bytes) -> bool | None:
    """Tell whether training started, or None if the file does not say."""
    said = [results["started"] for results in json.loads(content).values() if "started" in results]
    return bool(said[0]) if said else None
