"""Finished rows outside every artifact, so that no image is ever computed twice.

DVC deletes a stage's outs before it runs the stage, so what is to survive a killed run
cannot live there. Rows live in the scratch folder, in one folder for each kind of row:
everything that decides a row's values, besides the image, is part of the kind, and
rows of different kinds never meet. Within a kind, rows are found by the digest of
their image, whatever data set it belongs to, and several processes, also of several
users, may fill it together. Beside the rows stands which processor computed each.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fne.activations.processor import note, processor_name, read_notes
from fne.store.files import said_clearly, sync, text_digest, write_text
from fne.store.journal import Journal

KIND = "kind.json"
NOTES = ".made"
# The leading digits of an image's digest that name its journal: 256 journals share the locks.
PREFIX = 2


class Claimed:
    """A locked journal of the scratch folder."""

    def __init__(self, journal: Journal, device: str) -> None:
        self._journal = journal
        self._device = device

    def append(self, digest: str, values: np.ndarray, processor: str | None = None) -> None:
        """Append one row, and who computed it: by default, this machine.

        Raises:
            InputError: if the disk is full; what was appended before is kept.
        """
        note(_notes(self._journal.path), digest, processor or processor_name(self._device))
        self._journal.append(digest, values)

    def unlock(self) -> None:
        """Force the rows to the disk and give the lock back."""
        try:
            if (notes := _notes(self._journal.path)).exists():
                with said_clearly(notes):
                    sync(notes)
        finally:
            self._journal.unlock()


class Scratch:
    """The finished rows of one kind."""

    def __init__(self, folder: Path, kind: dict[str, Any], features: int) -> None:
        description = json.dumps(kind | {"features": features}, indent=1, sort_keys=True) + "\n"
        self.folder = folder / text_digest(description)[:16]
        self._features = features
        self._device = str(kind.get("device", "cpu"))
        if not (self.folder / KIND).exists():
            write_text(self.folder / KIND, description)

    def rows(self, digests: Iterable[str]) -> dict[str, np.ndarray]:
        """Return the finished rows among those of `digests`, memory-mapped."""
        found = {}
        for prefix, wanted in _by_prefix(digests).items():
            finished = self._journal(prefix).read()
            found.update({digest: finished[digest] for digest in wanted if digest in finished})
        return found

    def processors(self, digests: Iterable[str]) -> dict[str, str]:
        """Return the processors that computed the rows of `digests`, where that is known."""
        found = {}
        for prefix, wanted in _by_prefix(digests).items():
            noted = read_notes(_notes(self._journal(prefix).path))
            found.update({digest: noted[digest] for digest in wanted if digest in noted})
        return found

    def claims(self, digests: Iterable[str]) -> Iterator[tuple[Claimed, list[str], list[str]]]:
        """Yield locked journals, those of `digests` that belong there, and those of them not finished.

        Journals that another process is filling are passed over. The receiver appends the
        rows and unlocks each journal.
        """
        for prefix, wanted in _by_prefix(digests).items():
            journal = self._journal(prefix)
            if journal.lock():
                finished = journal.read()
                missing = [digest for digest in wanted if digest not in finished]
                yield Claimed(journal, self._device), wanted, missing

    def is_busy(self, digests: Iterable[str]) -> bool:
        """Tell whether other processes hold the journals of all `digests`."""
        for prefix in _by_prefix(digests):
            journal = self._journal(prefix)
            if journal.lock():
                journal.unlock()
                return False
        return True

    def owners(self, digests: Iterable[str]) -> list[str]:
        """Return the process numbers that hold the journals of `digests`."""
        return sorted({self._journal(prefix).owner() for prefix in _by_prefix(digests)} - {""})

    def _journal(self, prefix: str) -> Journal:
        return Journal(self.folder / f"{prefix}.rows", self._features)


def _notes(journal: Path) -> Path:
    return journal.with_suffix(NOTES)


def _by_prefix(digests: Iterable[str]) -> dict[str, list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for digest in digests:
        groups[digest[:PREFIX]].append(digest)
    return dict(sorted(groups.items()))
