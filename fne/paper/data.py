"""The files of `paper/`: what the paper prints, and what is needed to run it.

They are data, not code, so that a number can be compared with the printed page; nothing in
Python repeats them.
"""

from functools import cache
from pathlib import Path
from typing import Any

from fne.core.params import load_params

FOLDER = Path(__file__).parents[2] / "paper"


@cache
def load(name: str) -> dict[str, Any]:
    """Return the content of one file of `paper/`, such as `table2`."""
    return load_params(FOLDER / f"{name}.yaml")


def for_dataset(value: Any, dataset: str) -> Any:
    """Return the value for a data set: the value itself, or that of a mapping from data sets.

    Example:
        >>> for_dataset({"coco": 2000, "flickr8k": 1000}, "coco"), for_dataset(300, "coco")
        (2000, 300)
    """
    return value[dataset] if isinstance(value, dict) else value
