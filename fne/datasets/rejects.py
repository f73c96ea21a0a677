"""Rejects: images and captions that cannot be used, and the table that lists them."""

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import plain_cell, read_bytes, text_digest, write_text
from fne.datasets.readers.base import shorten
from fne.store.artifact import Artifact, Contents, Kind

COLUMNS = ("id", "path", "caption", "reason")


@dataclass(frozen=True)
class Reject:
    """A rejected image or caption; `caption` is empty if the image is rejected."""

    id: str
    path: str
    split: str
    caption: str
    reason: str


def write_rejects(path: Path, rejects: Iterable[Reject]) -> str:
    """Write `rejects.csv`, sorted by id; names and captions of others are never formulas in it."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for reject in sorted(rejects, key=lambda each: each.id):
        table.writerow([plain_cell(getattr(reject, column)) for column in COLUMNS])
    # A caption may be rejected because it cannot be encoded as UTF-8.
    content = text.getvalue().encode("utf-8", "backslashreplace").decode()
    write_text(path, content)
    return text_digest(content)


def refuse_rejects(path: Path, rejects: Sequence[Reject], max_rejects: int) -> None:
    """Refuse a data set with more rejects than the user allows."""
    if len(rejects) > max_rejects:
        ordered = sorted(rejects, key=lambda each: each.id)
        shown = shorten([f"{reject.id!r} ({reject.reason})" for reject in ordered])
        raise InputError(
            f"{path}: {len(rejects)} rejects, more than catalog.max_rejects = {max_rejects}: {shown}; "
            f"fix them, or set catalog.max_rejects to {len(rejects)} to continue without them"
        )


def _open(path: Path) -> Contents:
    content = read_bytes(path)
    try:
        rows = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: not a table of rejects ({error})") from None
    valid = rows[:1] == [list(COLUMNS)] and all(len(row) == len(COLUMNS) for row in rows)
    faults = [] if valid else [f"{path}: expected the columns {', '.join(COLUMNS)}"]
    return Contents(Artifact(path, "rejects", hashlib.sha256(content).hexdigest()), faults=faults)


KIND = Kind("rejects.csv", lambda path, _: _open(path), _open)
