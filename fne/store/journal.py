"""Rows that survive the end of their writer, kept outside every artifact.

A journal is an append-only file of rows, each under the digest of what it was made
from and with a checksum of its own. A row counts once it is whole: a writer killed in
the middle leaves half a row at the end, which is cut off before the next one appends. A
journal has at most one writer at a time, who holds its lock; the lock ends with its
owner, however that ends.
"""

import errno
import fcntl
import hashlib
import os
from pathlib import Path

import numpy as np

from fne.store.files import said_clearly, sync


class Journal:
    """One journal file and its lock."""

    def __init__(self, path: Path, features: int) -> None:
        self.path = path
        self._handle: int | None = None
        self._row = np.dtype([("digest", "V32"), ("values", "<f4", (features,)), ("checksum", "V32")])

    def read(self) -> dict[str, np.ndarray]:
        """Return the whole rows, memory-mapped, by the digests of their sources."""
        count = self._count()
        if count == 0:
            return {}
        records = np.memmap(self.path, dtype=self._row, mode="r", shape=(count,))
        return {
            record["digest"].tobytes().hex(): record["values"]
            for record in records
            if record["checksum"].tobytes() == _checksum(record["digest"].tobytes(), record["values"])
        }

    def append(self, digest: str, values: np.ndarray) -> None:
        """Append one row; call only while holding the lock.

        Raises:
            InputError: if the disk is full; what was appended before is kept.
        """
        source = bytes.fromhex(digest)
        values = np.ascontiguousarray(values, dtype="<f4")
        record = source + values.tobytes() + _checksum(source, values)
        with said_clearly(self.path):
            try:
                with self.path.open("ab", buffering=0) as file:
                    if file.write(record) != len(record):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                self._cut_half_row()
                raise

    def lock(self) -> bool:
        """Take the lock if nobody has it; tell whether it is ours now."""
        with said_clearly(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The file stays for ever: removing it would let two processes lock two files of one name.
            handle = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            except BlockingIOError:
                os.close(handle)
                return False
            except OSError:
                os.close(handle)
                raise
        self._handle = handle
        self._cut_half_row()
        return True

    def unlock(self) -> None:
        """Force the rows to the disk and give the lock back."""
        try:
            if self.path.exists():
                with said_clearly(self.path):
                    sync(self.path)
        finally:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def owner(self) -> str:
        """Return the process number of the lock's last owner."""
        return self._lock_path.read_text() if self._lock_path.exists() else ""

    @property
    def _lock_path(self) -> Path:
        return self.path.with_suffix(".lock")

    def _count(self) -> int:
        return self.path.stat().st_size // self._row.itemsize if self.path.exists() else 0

    def _cut_half_row(self) -> None:
        if self.path.exists():
            whole = self._count() * self._row.itemsize
            if whole < self.path.stat().st_size:
                os.truncate(self.path, whole)


def _checksum(digest: bytes, values: np.ndarray) -> bytes:
    return hashlib.sha256(digest + values.tobytes()).digest()
