"""Tables: CSV or JSONL with one row for each caption.

Columns are `image`, `caption`, and if wanted `split` and `tags`; others are counted, and
refused if they look like one of these misspelt. Rows of one image belong together and
must agree about its split. CSV separates tags by `;`; JSONL has a list of them, and may
give all captions of an image at once as `captions`.
"""

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel

from fne.core.errors import InputError
from fne.datasets.names import normal
from fne.datasets.records import Reading, Record, examples, refuse, sorted_tags
from fne.datasets.strict import as_model, parse_json, read_text

COLUMNS = ("image", "caption", "split", "tags")
KEYS = (*COLUMNS, "captions")
IGNORED = "columns of other names, ignored"
ALIKE = 0.8  # two letters exchanged in `image` or `split`


class _Row(BaseModel):
    image: str
    caption: Any = None
    captions: list[Any] = []
    split: str | None = None
    tags: list[str] = []


class _Rows(RootModel[dict[str, _Row]]):
    """Rows by their place in the file, such as `line 7`."""


def read_table(root: Path, annotations: list[Path]) -> Reading:
    """Read one CSV or JSONL file."""
    (source,) = annotations
    lines, counts = _jsonl(source) if source.suffix.lower() == ".jsonl" else _csv(source)
    rows = as_model(lines, _Rows, str(source)).root
    refuse(source, [fault for place, row in rows.items() for fault in _faults(place, row)], "fix these lines")
    records: dict[str, Record] = {}
    faults = []
    for place, row in rows.items():
        split = (row.split or "").strip() or None
        new = Record(normal(row.image.strip()), split, _captions(row), sorted_tags(row.tags), source, place)
        old = records.setdefault(new.id, new)
        if old is not new:
            if old.split != new.split:
                faults.append(f"{place} puts {new.id!r} in {_named(new)}, {old.place} in {_named(old)}")
            records[new.id] = _joined(old, new)
    refuse(source, faults, "an image has one split: change one of the lines")
    return Reading(list(records.values()), counts)


def _captions(row: _Row) -> tuple[object, ...]:
    return (*((row.caption,) if "caption" in row.model_fields_set else ()), *row.captions)


def _faults(place: str, row: _Row) -> Iterable[str]:
    """Name captions that are not texts by their own line; `checks` knows only the first of the image."""
    for caption in _captions(row):
        if caption is not None and not isinstance(caption, str):
            yield f"{place} {row.image!r} has a caption that is not a text but {caption!r:.40}"


def _named(record: Record) -> str:
    return f"split {record.split!r}" if record.split else "no split"


def _joined(old: Record, new: Record) -> Record:
    return replace(old, captions=old.captions + new.captions, tags=sorted_tags(old.tags + new.tags))


def _csv(source: Path) -> tuple[dict[str, Any], Counter[str]]:
    csv.field_size_limit(sys.maxsize)  # a very long caption is still a caption
    lines = csv.reader(io.StringIO(read_text(source), newline=""), strict=True)
    rows = {}
    faults = []
    start = 1  # the line on which the record begins that is read next
    try:
        header = _header(source, next(lines, []))
        start = lines.line_num + 1
        for values in lines:
            if values and len(values) != len(header):
                faults.append(f"line {start} has {len(values)} fields, the header {len(header)}")
            elif values:
                cells: dict[str, Any] = dict(zip(header, values, strict=True))
                rows[f"line {start}"] = cells | {"tags": cells.get("tags", "").split(";")}
            start = lines.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{source}: line {start}: the record that begins here is not CSV: {error}; fix its quotes"
        ) from None
    refuse(source, faults, "quote captions that contain a comma")
    return rows, _ignored(source, dict.fromkeys(header, "the header"), COLUMNS)


def _header(source: Path, cells: list[str]) -> list[str]:
    header = [name.strip().lower() for name in cells]
    missing = [repr(name) for name in COLUMNS[:2] if name not in header]
    if missing:
        raise InputError(
            f"{source}: no column {' and '.join(missing)}, found {header}; "
            f"the columns are {', '.join(COLUMNS)}, separated by commas"
        )
    repeated = [name for name, count in Counter(header).items() if name and count > 1]
    refuse(source, [f"the column {name!r} stands twice" for name in repeated], "keep one of them")
    return header


def _jsonl(source: Path) -> tuple[dict[str, Any], Counter[str]]:
    rows = {
        f"line {number}": parse_json(line, f"{source}: line {number}")
        for number, line in enumerate(read_text(source).split("\n"), start=1)
        if line.strip()
    }
    places: dict[str, str] = {}
    for place, row in rows.items():
        for key in row if isinstance(row, dict) else ():
            places.setdefault(key, place)
    return rows, _ignored(source, places, KEYS)


def _ignored(source: Path, places: Mapping[str, str], known: Sequence[str]) -> Counter[str]:
    """Count the unknown names, given with their places; refuse those that are nearly known."""
    others = [name for name in places if name and name not in known]
    close = {name: _close(name, known) for name in others}
    faults = [
        f"{places[name]} has the unknown name {name!r} (did you mean {near!r}?)"
        for name, near in close.items()
        if near
    ]
    refuse(source, faults, f"rename or remove it; known are {', '.join(known)}")
    return Counter({f"{IGNORED} ({examples(others)})": len(others)} if others else {})


def _close(name: str, known: Sequence[str]) -> str | None:
    """Return the known name of which this may be a misspelling; `caption_id` is none."""
    close = get_close_matches(name.strip().lower(), known, n=1, cutoff=ALIKE)
    return close[0] if close and abs(len(close[0]) - len(name)) <= 1 else None
