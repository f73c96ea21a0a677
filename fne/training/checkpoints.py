"""Checkpoints of training, in the scratch folder: a killed run continues from the newest one.

Checkpoints belong to a key, the digest of every setting and input, so other settings never use them. Only the
training that holds the lock of a key uses it. Of several processes, the first one writes the checkpoints and
sends them to the others. Two are kept, in case the newest is damaged. A finished run removes them.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.locks import FileLock, waiting_message
from fne.core.processes import ALONE, Processes
from fne.store.tensors import read_sealed, write_sealed

# Raised when training continues differently from the same checkpoint, or stores other things in it.
VERSION = 3
# Between two checkpoints. A kill costs at most this time, unless a single step takes longer.
SECONDS = 30.0
KEPT = 2
CHECKPOINT = re.compile(r"[0-9]{8}\.safetensors")
# Files of a killed writer.
LEFTOVER = re.compile(r"\.[0-9]{8}\.safetensors\.[0-9]+\.tmp")
LOCK = "lock"
# Between two attempts to get the lock.
WAIT_SECONDS = 0.5


class Checkpoints:
    """The checkpoints of one training run."""

    def __init__(
        self,
        folder: Path,
        log: Callable[[str], None],
        processes: Processes = ALONE,
        seconds: float = SECONDS,
    ) -> None:
        self._folder = folder
        self._log = log
        self._processes = processes
        self._seconds = seconds
        self._saved = time.monotonic()
        self._duration = 0.0

    def due(self) -> bool:
        """Return whether it is time to save, such that saving takes at most a twentieth of the time."""
        pause = max(self._seconds, 20 * self._duration)
        return self._processes.first and time.monotonic() - self._saved >= pause

    def save(self, progress: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint, and remove all but the newest two."""
        if not self._processes.first:
            return
        started = time.monotonic()
        # Includes folders and links with such a name, so that no name is used twice.
        numbers = [int(path.stem) for path in self._folder.iterdir() if CHECKPOINT.fullmatch(path.name)]
        path = self._folder / f"{max(numbers, default=0) + 1:08d}.safetensors"
        write_sealed(path, {"progress": progress}, tensors)
        for old in self._files()[:-KEPT]:
            old.unlink()
        self._saved = time.monotonic()
        self._duration = self._saved - started

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return the newest intact checkpoint, if there is one, and remove files of killed writers."""
        return self._processes.from_first(self._load() if self._processes.first else None)

    def remove(self) -> None:
        """Remove all checkpoints: the run has finished."""
        if not self._processes.first:
            return
        for path in [*self._files(), *self._leftovers(), self._folder / LOCK]:
            path.unlink()
        # A waiting process may already have created a new lock, and unknown files are kept.
        with suppress(OSError):
            self._folder.rmdir()

    def _load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        for path in self._leftovers():
            path.unlink()
        for path in reversed(self._files()):
            try:
                description, tensors = read_sealed(path)
            except InputError as error:
                self._log(f"a damaged checkpoint is removed: {error.message}")
                path.unlink()
            else:
                return description["progress"], tensors
        return None

    def _files(self) -> list[Path]:
        found = (path for path in self._folder.iterdir() if CHECKPOINT.fullmatch(path.name))
        return sorted(path for path in found if path.is_file() and not path.is_symlink())

    def _leftovers(self) -> list[Path]:
        """Return the temporary files of killed writers; none is in use, as this process has the lock."""
        return [
            path for path in self._folder.iterdir() if LEFTOVER.fullmatch(path.name) and not path.is_dir()
        ]


@contextmanager
def open_checkpoints(
    scratch: Path, key: dict[str, Any], log: Callable[[str], None], processes: Processes = ALONE
) -> Iterator[Checkpoints]:
    """Yield the checkpoints of a key, waiting while another process trains with the same one.

    The number of processes is part of the key, because the last bits of results depend on it.
    """
    if processes.count > 1:
        key = key | {"processes": processes.count}
    digest = text_digest(json.dumps({"version": VERSION, **key}, sort_keys=True))
    folder = scratch / "training" / digest[:16]
    lock = FileLock(folder / LOCK)
    _wait_for(lock, log, processes)
    try:
        yield Checkpoints(folder, log, processes)
    finally:
        lock.release()


def _wait_for(lock: FileLock, log: Callable[[str], None], processes: Processes) -> None:
    """Wait for the lock, which the first process holds for all."""
    reported = False
    # All processes wait together: one that waits too long for another one gives up.
    while processes.any(processes.first and not lock.acquire()):
        owner = lock.owner() if processes.first else ""
        if owner and not reported:
            log(waiting_message(owner, "trains the same model"))
            reported = True
        time.sleep(WAIT_SECONDS)
