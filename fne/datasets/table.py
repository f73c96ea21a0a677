"""Tables: CSV or JSONL with one row for each caption.

Columns are `image`, `caption`, and if wanted `split` and `tags`. Rows of one image
belong together and must agree about its split. CSV separates tags by `;`; JSONL has a
list of them, and may give all captions of an image at once as `captions`.
"""

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel

from fne.core.errors import InputError
from fne.datasets.records import Reading, Record, refuse, sorted_tags
from fne.datasets.strict import as_model, parse_json, read_text

COLUMNS = ("image", "caption", "split", "tags")


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
    lines = _jsonl(source) if source.suffix == ".jsonl" else _csv(source)
    rows = as_model(lines, _Rows, str(source)).root
    records: dict[str, Record] = {}
    faults = []
    for place, row in rows.items():
        single = (row.caption,) if "caption" in row.model_fields_set else ()
        new = Record(row.image, row.split, (*single, *row.captions), sorted_tags(row.tags), source, place)
        old = records.setdefault(new.id, new)
        if old is not new:
            if old.split != new.split:
                faults.append(f"{place} puts {new.id!r} in split {new.split!r}, {old.place} in {old.split!r}")
            records[new.id] = _joined(old, new)
    refuse(source, faults, "an image has one split: change one of the lines")
    return Reading(list(records.values()))


def _joined(old: Record, new: Record) -> Record:
    return replace(old, captions=old.captions + new.captions, tags=sorted_tags(old.tags + new.tags))


def _csv(source: Path) -> dict[str, dict[str, Any]]:
    csv.field_size_limit(sys.maxsize)  # a very long caption is still a caption
    lines = csv.reader(io.StringIO(read_text(source), newline=""), strict=True)
    rows = {}
    faults = []
    try:
        header = _header(source, next(lines, []))
        for values in lines:
            if values and len(values) != len(header):
                faults.append(f"line {lines.line_num} has {len(values)} fields, the header {len(header)}")
            elif values:
                cells: dict[str, Any] = dict(zip(header, values, strict=True))
                rows[f"line {lines.line_num}"] = cells | {"tags": cells.get("tags", "").split(";")}
    except csv.Error as error:
        raise InputError(f"{source}: line {lines.line_num}: {error}; fix the quotes of this line") from None
    refuse(source, faults, "quote captions that contain a comma")
    return rows


def _header(source: Path, cells: list[str]) -> list[str]:
    header = [name.strip().lower() for name in cells]
    missing = [repr(name) for name in COLUMNS[:2] if name not in header]
    if missing:
        raise InputError(
            f"{source}: no column {' and '.join(missing)}, found {header}; "
            f"the columns are {', '.join(COLUMNS)}, separated by commas"
        )
    return header


def _jsonl(source: Path) -> dict[str, Any]:
    return {
        f"line {number}": parse_json(line, f"{source}: line {number}")
        for number, line in enumerate(read_text(source).split("\n"), start=1)
        if line.strip()
    }
