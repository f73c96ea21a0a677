"""The page about layers: recall of each, alone and together, what they share, and what they call similar."""

from collections.abc import Mapping
from typing import Any

from fne.probing.results import chosen, interval, table
from fne.report.frame import Frame
from fne.report.page import render_page

PAGE = "layers_page"  # in records
KINDS = {
    ("layer",): "Each layer alone",
    ("block", "all"): "Blocks of layers, and all",
    ("last",): "From a layer to the last one",
    ("first",): "From the first layer to a layer",
}
CELL, TOP = 22, 8  # pixels of the map
LONGEST, LETTER = 16, 8  # letters of a name that the map shows, and pixels of each


def pictured(found: Mapping[str, Any]) -> list[str]:
    """Return the ids of the images that the page shows."""
    near = found["neighbors"]
    every = {image for own in near.values() for images in own.values() for image in images}
    return sorted(every | set(near))


def render_layers(found: Mapping[str, Any], frame: Frame) -> str:
    """Return the page as HTML, from what `fne.probing.measure` measured."""
    sets = [each for each in found["sets"] if each["rsum"] is not None]
    highest = max((each["high"] for each in sets), default=1.0)
    names = [layer["name"] for layer in found["layers"]]
    left = 10 + LETTER * min(LONGEST, max(map(len, names)))
    values = {
        "split": "val",
        "found": found,
        "facts": frame.head,
        "groups": [
            (title, [(each, interval(each)) for each in sets if each["kind"] in kinds])
            for kinds, title in KINDS.items()
            if any(each["kind"] in kinds for each in sets)
        ],
        "scale": 100 / max(highest, 1.0),
        "best": max(sets, key=lambda each: float(each["rsum"]), default=None),
        "chosen": None,
        "statements": chosen(dict(found)),
        "rows": table(dict(found)),
        "names": names,
        "cells": [
            (left + CELL * column, TOP + CELL * row, value, f"{names[row]} and {names[column]}")
            for row, line in enumerate(found["cka"])
            for column, value in enumerate(line)
        ],
        "map": (left, TOP, CELL, left + TOP + CELL * len(names), LONGEST),
    }
    return render_page("layers_page.html", values, frame, ("sort.js",))
