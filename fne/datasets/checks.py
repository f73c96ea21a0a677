"""The faults of a data set that stop everything before an image is opened."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fne.core.params import not_one_of
from fne.datasets.names import unsafe
from fne.datasets.records import Record, refuse
from fne.datasets.splits import KNOWN


def check_records(records: Iterable[Record]) -> None:
    """Refuse unsafe names, repeated ids, unknown splits and captions that are not texts.

    Raises:
        InputError: naming all faults of the first file that has any.
    """
    faults: defaultdict[Path, list[str]] = defaultdict(list)
    first: dict[str, Record] = {}
    for record in records:
        found = [*_faults(record)]
        other = first.setdefault(record.id, record)
        if other is not record:
            found.append(f"has the same name as {other.place}{_elsewhere(other, record)}")
        faults[record.source] += [f"{record.place} {record.id!r} {fault}" for fault in found]
    for source, its_faults in faults.items():
        refuse(source, its_faults, "fix or remove these entries")


def _faults(record: Record) -> Iterable[str]:
    fault = unsafe(record.id)
    if fault:
        yield fault
    elif record.id.rpartition("/")[2] in ("", "."):
        yield "names no file"
    if record.split is not None and record.split not in KNOWN:
        yield f"has an unknown split: {not_one_of(record.split, KNOWN)}"
    for number, caption in enumerate(record.captions):
        if caption is not None and not isinstance(caption, str):
            yield f"has a caption {number} that is not a text but {caption!r:.40}"


def _elsewhere(other: Record, record: Record) -> str:
    return "" if other.source == record.source else f" of {other.source}"
