"""Tables: CSV, TSV or JSONL with one row per caption, or one per image that has tags only.

Commas, tabs or semicolons separate the columns of a text file: the ones with which its header has an image
and a caption or tags. A column has the name that `Columns` gives it, or its own name, or the only one of the
names in `RECOGNIZED`.

The columns are `image`, then `caption` or `tags` or both, and optionally `split` and `user_tags`: noisy tags,
as users gave them, which a tagger can read besides the image. Other columns are counted and ignored, but one
that looks misspelled is an error. The rows of one image are joined and must have the same split. In CSV, `;`
separates tags and user tags. In JSONL they are lists, and a row can have several captions as `captions`.
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

from pydantic import BaseModel, Field, RootModel

from fne.core.errors import InputError
from fne.core.settings import Section
from fne.datasets.readers.base import (
    Reading,
    Record,
    as_model,
    examples,
    normalize_path,
    parse_json,
    read_text,
    refuse,
    sorted_tags,
)

COLUMNS = ("image", "caption", "split", "tags", "user_tags")
KEYS = (*COLUMNS, "captions")
AUTO = "auto"
# Names that other programs give to these columns.
RECOGNIZED = {
    "image": (
        *("filepath", "file_path", "file_name", "filename", "file", "path"),
        *("image_path", "image_file", "image_name", "img"),
    ),
    "caption": ("title", "text", "sentence", "description", "comment"),
}
DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
IGNORED = "columns of other names, ignored"
RENAMED = "columns with other names, recognized"
SIMILARITY = 0.8  # that of `image` or `split` with two letters swapped


class Columns(Section):
    """The names of the columns of a table; `auto` recognizes usual ones."""

    image: str = Field(AUTO, min_length=1, description="recognized: image, filepath, file_name, path, …")
    caption: str = Field(AUTO, min_length=1, description="recognized: caption, title, text, sentence, …")
    split: str = Field(AUTO, min_length=1, description="recognized: split")
    tags: str = Field(AUTO, min_length=1, description="recognized: tags")
    user_tags: str = Field(AUTO, min_length=1, description="recognized: user_tags")

    @property
    def named(self) -> dict[str, str]:
        """The columns that have a name, in lower case."""
        found = {role: getattr(self, role).strip().lower() for role in COLUMNS}
        return {role: name for role, name in found.items() if name != AUTO}


AUTOMATIC = Columns()


class _Row(BaseModel):
    image: str
    caption: Any = None
    captions: list[Any] = []
    split: str | None = None
    tags: list[str] = []
    user_tags: list[str] = []


class _Rows(RootModel[dict[str, _Row]]):
    """Rows by their place in the file, for example `line 7`."""


def read_table(root: Path, annotations: list[Path], columns: Columns = AUTOMATIC) -> Reading:
    """Read one CSV, TSV or JSONL file."""
    (source,) = annotations
    named = columns.named
    lines, counts = _jsonl(source, named) if source.suffix.lower() == ".jsonl" else _csv(source, named)
    rows = as_model(lines, _Rows, str(source)).root
    refuse(source, [fault for place, row in rows.items() for fault in _faults(place, row)], "fix these lines")
    records: dict[str, Record] = {}
    faults = []
    for place, row in rows.items():
        split = (row.split or "").strip() or None
        new = Record(
            normalize_path(row.image.strip()),
            split,
            _captions(row),
            sorted_tags(row.tags),
            source,
            place,
            sorted_tags(row.user_tags),
        )
        old = records.setdefault(new.id, new)
        if old is not new:
            if old.split != new.split:
                faults.append(
                    f"{place} puts {new.id!r} in {_split_name(new)}, {old.place} in {_split_name(old)}"
                )
            records[new.id] = _joined(old, new)
    refuse(source, faults, "an image can have only one split; change one of the lines")
    return Reading(list(records.values()), counts)


def roles(source: Path, names: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    """Return which column has which role, by its name in lower case; `named` has the user's names by role."""
    found: dict[str, str] = {}
    for role in COLUMNS:
        if role in named:
            if named[role] not in names:
                raise InputError(
                    f"{source}: catalog.columns.{role} is {named[role]!r}, which is not a column; "
                    f"found {', '.join(map(repr, names))}"
                )
            found[named[role]] = role
        elif role in names and role not in found:
            found[role] = role
        else:
            usual = [name for name in RECOGNIZED.get(role, ()) if name in names and name not in found]
            usual = [] if role == "caption" and "captions" in names else usual
            if len(usual) > 1:
                raise InputError(
                    f"{source}: {' and '.join(map(repr, usual))} may each be the column {role!r}; "
                    f"set catalog.columns.{role} to one of them"
                )
            found |= dict.fromkeys(usual, role)
    return found


def _renamed(name: str, found: Mapping[str, str]) -> str:
    """Return the role of a column, or its name; one that has the name of another role is ignored."""
    return found.get(name) or (f"other {name}" if name in COLUMNS else name)


def _recognized(found: Mapping[str, str]) -> Counter[str]:
    """Count the columns whose role does not follow from their name."""
    others = [f"{name!r} as {role}" for name, role in found.items() if name != role]
    return Counter({f"{RENAMED} ({', '.join(others)})": len(others)} if others else {})


def _captions(row: _Row) -> tuple[object, ...]:
    return (*((row.caption,) if "caption" in row.model_fields_set else ()), *row.captions)


def _faults(place: str, row: _Row) -> Iterable[str]:
    """Yield captions that are not strings, by their own line; the catalog knows only the image's first."""
    for caption in _captions(row):
        if caption is not None and not isinstance(caption, str):
            yield f"{place} {row.image!r} has a caption that is not a string: {caption!r:.40}"


def _split_name(record: Record) -> str:
    return f"split {record.split!r}" if record.split else "no split"


def _joined(old: Record, new: Record) -> Record:
    return replace(
        old,
        captions=old.captions + new.captions,
        tags=sorted_tags(old.tags + new.tags),
        user_tags=sorted_tags(old.user_tags + new.user_tags),
    )


def _csv(source: Path, named: Mapping[str, str]) -> tuple[dict[str, Any], Counter[str]]:
    csv.field_size_limit(sys.maxsize)  # allows very long captions
    text = read_text(source)
    delimiter = _delimiter(source, text, named)
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    rows = {}
    faults = []
    start = 1  # the first line of the next record
    try:
        names = _lower(next(lines, []))
        found = roles(source, names, named)
        header = _header(source, names, found)
        start = lines.line_num + 1
        for values in lines:
            if values and len(values) != len(header):
                faults.append(f"line {start} has {len(values)} fields, the header {len(header)}")
            elif values:
                cells: dict[str, Any] = dict(zip(header, values, strict=True))
                listed = {name: cells.get(name, "").split(";") for name in ("tags", "user_tags")}
                rows[f"line {start}"] = cells | listed
            start = lines.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{source}: line {start}: the record that starts here is not valid CSV: {error}; fix its quotes"
        ) from None
    refuse(source, faults, f"quote captions that contain a {DELIMITERS[delimiter]}")
    ignored = _ignored(source, dict.fromkeys(header, "the header"), COLUMNS)
    return rows, ignored + _recognized(found)


def _delimiter(source: Path, text: str, named: Mapping[str, str]) -> str:
    """Return the first separator that fits the header or, for messages, the one with most columns."""
    columns: dict[str, int] = {}
    for delimiter in DELIMITERS:
        lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
        try:
            names = _lower(next(lines, []))
            columns[delimiter] = len(names)
            found = roles(source, names, named).values()
        except (csv.Error, InputError):
            continue
        if "image" in found and {"caption", "tags"} & set(found):
            return delimiter
    return max(columns, key=lambda each: columns[each], default=",")


def _lower(cells: Iterable[str]) -> list[str]:
    return [name.strip().lower() for name in cells]


def _header(source: Path, names: list[str], found: Mapping[str, str]) -> list[str]:
    header = [_renamed(name, found) for name in names]
    missing = ["'image'"] * ("image" not in header)
    missing += ["'caption' or 'tags'"] * (not {"caption", "tags"} & set(header))
    if missing:
        raise InputError(
            f"{source}: no column {' and '.join(missing)}, found {names}; the columns are "
            f"{', '.join(COLUMNS)}, separated by commas, tabs or semicolons; name yours in catalog.columns"
        )
    repeated = [name for name, count in Counter(names).items() if name and count > 1]
    refuse(source, [f"the column {name!r} occurs twice" for name in repeated], "keep only one")
    return header


def _jsonl(source: Path, named: Mapping[str, str]) -> tuple[dict[str, Any], Counter[str]]:
    rows: dict[str, Any] = {
        f"line {number}": parse_json(line, f"{source}: line {number}")
        for number, line in enumerate(read_text(source).split("\n"), start=1)
        if line.strip()
    }
    places: dict[str, str] = {}
    for place, row in rows.items():
        for key in row if isinstance(row, dict) else ():
            places.setdefault(key, place)
    lower = {key: key.strip().lower() if isinstance(key, str) else key for key in places}
    found = roles(source, list(dict.fromkeys(lower.values())), named)
    # Names in other letters stay as they are, so that a misspelled one is refused below.
    renamed = {key: _renamed(low, found) for key, low in lower.items() if low == key or found.get(low) != low}
    rows = {
        place: {renamed.get(key, key): value for key, value in row.items()} if isinstance(row, dict) else row
        for place, row in rows.items()
    }
    known_places = {renamed.get(key, key): place for key, place in places.items()}
    return rows, _ignored(source, known_places, KEYS) + _recognized(found)


def _ignored(source: Path, places: Mapping[str, str], known: Sequence[str]) -> Counter[str]:
    """Count unknown names, given with their places; refuse names that look misspelled."""
    others = [name for name in places if name and name not in known]
    close = {name: _close(name, known) for name in others}
    faults = [
        f"{places[name]} has the unknown name {name!r} (did you mean {near!r}?)"
        for name, near in close.items()
        if near
    ]
    refuse(source, faults, f"rename or remove it; the known names are {', '.join(known)}")
    return Counter({f"{IGNORED} ({examples(others)})": len(others)} if others else {})


def _close(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that this may be a misspelling of, or None, as for `caption_id`."""
    close = get_close_matches(name.strip().lower(), known, n=1, cutoff=SIMILARITY)
    return close[0] if close and abs(len(close[0]) - len(name)) <= 1 else None
