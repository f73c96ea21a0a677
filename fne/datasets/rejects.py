"""Images and captions that were skipped: a table for the user to look at."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fne.core.errors import InputError
from fne.datasets.records import shorten
from fne.store.files import write_text

COLUMNS = ("id", "path", "caption", "reason")


@dataclass(frozen=True)
class Reject:
    """A skipped image or caption; `caption` is empty where the image itself is meant."""

    id: str
    path: str
    split: str
    caption: str
    reason: str


def write_rejects(path: Path, rejects: Iterable[Reject]) -> None:
    """Write `rejects.csv`, sorted by id."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for reject in sorted(rejects, key=lambda each: each.id):
        table.writerow([getattr(reject, column) for column in COLUMNS])
    # A caption may have been refused because it cannot be written as UTF-8.
    write_text(path, text.getvalue().encode("utf-8", "backslashreplace").decode())


def refuse_rejects(path: Path, rejects: Sequence[Reject], max_rejects: int) -> None:
    """Stop if more was skipped than the user allows, naming the first of them.

    Args:
        path: the file to which they were written.
        rejects: what was skipped.
        max_rejects: the number that is still accepted.
    """
    if len(rejects) > max_rejects:
        ordered = sorted(rejects, key=lambda each: each.id)
        shown = shorten([f"{reject.id!r} ({reject.reason})" for reject in ordered])
        raise InputError(
            f"{path}: {len(rejects)} skipped, more than catalog.max_rejects = {max_rejects}: {shown}; "
            f"fix them, or set catalog.max_rejects to {len(rejects)} to go on without them"
        )
