"""Checkpoints of training, in the scratch folder: a run that was killed goes on where it was.

They belong to a key, the digest of every setting and input: other settings never meet
them. Of processes that train together, the first keeps them and sends them to the
others. Two are kept, so that one that was damaged costs the time since the other. A key has
one training process at a time, which holds its lock; a finished run removes its own.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.matching.sealed import read_sealed, write_sealed
from fne.store.files import said_clearly, text_digest

# Raised when training goes on differently from the same checkpoint, or keeps other things in it.
VERSION = 1
# Between two checkpoints: what a kill costs at most, unless a single step takes longer.
SECONDS = 30.0
KEPT = 2
LOCK = "lock"
# Between two looks at whether another process has finished.
WAIT_SECONDS = 0.5


class Checkpoints:
    """The checkpoints of one training run."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        processes: Processes = ALONE,
        seconds: float = SECONDS,
    ) -> None:
        self._folder = folder
        self._say = say
        self._processes = processes
        self._seconds = seconds
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Tell whether it is time to save."""
        return self._processes.first and time.monotonic() - self._saved >= self._seconds

    def save(self, progress: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint, and remove all but the newest two."""
        if not self._processes.first:
            return
        numbers = [int(path.stem) for path in self._files()]
        path = self._folder / f"{max(numbers, default=0) + 1:08d}.safetensors"
        write_sealed(path, {"progress": progress}, tensors)
        for old in self._files()[:-KEPT]:
            old.unlink()
        self._saved = time.monotonic()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return the newest whole checkpoint, if there is one, and remove what killed writers left."""
        return self._processes.from_first(self._load() if self._processes.first else None)

    def remove(self) -> None:
        """Remove all checkpoints: the run has finished."""
        if not self._processes.first:
            return
        for path in [*self._files(), *self._leftovers(), self._folder / LOCK]:
            path.unlink()
        # A process that waits may already have come back with a new lock.
        with suppress(OSError):
            self._folder.rmdir()

    def _load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        for path in self._leftovers():
            path.unlink()
        for path in reversed(self._files()):
            try:
                description, tensors = read_sealed(path)
            except InputError as error:
                self._say(f"a checkpoint is left out: {error.message}")
                path.unlink()
            else:
                return description["progress"], tensors
        return None

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.safetensors"))

    def _leftovers(self) -> list[Path]:
        """Return files that nobody is writing, since the lock is ours; safetensors has names of its own."""
        kept = {self._folder / LOCK, *self._files()}
        return [path for path in self._folder.iterdir() if path not in kept]


@contextmanager
def open_checkpoints(
    scratch: Path, key: dict[str, Any], say: Callable[[str], None], processes: Processes = ALONE
) -> Iterator[Checkpoints]:
    """Yield the checkpoints of a key, waiting while another process trains with the same one.

    With more processes the last bits are others, so their number is part of the key.
    """
    if processes.count > 1:
        key = key | {"processes": processes.count}
    digest = text_digest(json.dumps({"version": VERSION, **key}, sort_keys=True))
    folder = scratch / "training" / digest[:16]
    handle = _lock(folder / LOCK, say, processes)
    try:
        yield Checkpoints(folder, say, processes)
    finally:
        if handle is not None:
            os.close(handle)


def _lock(path: Path, say: Callable[[str], None], processes: Processes) -> int | None:
    """Wait for the lock, which the first process holds for all."""
    told = False
    while True:
        handle, owner = _try_lock(path) if processes.first else (None, "")
        # Together, because processes that wait for another one too long give up.
        if not processes.any(processes.first and handle is None):
            return handle
        if owner and not told:
            say(f"waiting for process {owner}, which trains the same model")
            told = True
        time.sleep(WAIT_SECONDS)


def _try_lock(path: Path) -> tuple[int | None, str]:
    """Return the lock, or None and who holds it."""
    with said_clearly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(handle, 32, 0).decode()
        os.close(handle)
        return None, owner
    # A finished run removes the folder: the lock we hold may be of a file that is gone.
    with suppress(FileNotFoundError):
        if os.path.samestat(path.stat(), os.fstat(handle)):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            return handle, ""
    os.close(handle)
    return None, ""
