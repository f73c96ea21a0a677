"""Append-only files of finished rows, which survive a killed writer.

Each row has the digest of its source as a key, and a checksum. A killed writer leaves an incomplete row at
the end, which the next writer truncates. A journal has at most one writer at a time, which holds its lock.
"""

import errno
import hashlib
import os
from pathlib import Path

import numpy as np

from fne.core.files import check_own, readable_os_errors, sync
from fne.core.locks import FileLock


class Journal:
    """One journal file and its lock."""

    def __init__(self, path: Path, features: int) -> None:
        self.path = path
        # The lock's file is never removed.
        self._lock = FileLock(path.with_suffix(".lock"))
        self._row = np.dtype([("digest", "V32"), ("values", "<f4", (features,)), ("checksum", "V32")])

    def read(self) -> dict[str, np.ndarray]:
        """Return the complete and undamaged rows, memory-mapped, by the digests of their sources."""
        check_own(self.path)
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
        """Append one row; call only while holding the lock."""
        source = bytes.fromhex(digest)
        values = np.ascontiguousarray(values, dtype="<f4")
        record = source + values.tobytes() + _checksum(source, values)
        with readable_os_errors(self.path):
            try:
                with self.path.open("ab", buffering=0) as file:
                    if file.write(record) != len(record):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                self._truncate()
                raise

    def lock(self) -> bool:
        """Take the lock if it is free, without waiting; return whether this object now holds it."""
        if not self._lock.acquire():
            return False
        check_own(self.path)
        self._truncate()
        return True

    def unlock(self) -> None:
        """Force the rows to disk and give the lock back."""
        try:
            if self.path.exists():
                with readable_os_errors(self.path):
                    sync(self.path)
        finally:
            self._lock.release()

    def owner(self) -> str:
        """Return the process id of the lock's last owner, or an empty string."""
        return self._lock.owner()

    def _count(self) -> int:
        return self.path.stat().st_size // self._row.itemsize if self.path.exists() else 0

    def _truncate(self) -> None:
        """Remove an incomplete row at the end."""
        if self.path.exists():
            complete = self._count() * self._row.itemsize
            if complete < self.path.stat().st_size:
                os.truncate(self.path, complete)


def _checksum(digest: bytes, values: np.ndarray) -> bytes:
    return hashlib.sha256(digest + values.tobytes()).digest()
