"""Results of reading files, kept between runs for as long as the files are unchanged.

Hashing takes about a second per gigabyte, and decoding an image several milliseconds. A program that starts
again should not repeat this for files that nobody has touched.

A file counts as unchanged only if its device, inode, size, modification time and status change time are the
same. The status change time (ctime) cannot be set back: it detects a file that was edited in place with its
old modification time restored, and two files that were swapped with `mv`. A file that changed during the last
seconds is not recorded, because a coarse clock could give its next change the same time. What changes bytes
behind the file system, such as a failing disk, is found by `fne verify`, which never uses these records.

Records are lines of a text file in the scratch folder: a key, a checksum and a value. A line is appended in a
single write, so several processes can use one file. A damaged line fits no key.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import check_own, file_digest, write_text

# A file that changes twice within the resolution of a disk's clock keeps its times.
CLOCK_RESOLUTION = 2 * 10**9  # nanoseconds
NAME = "verified"


@dataclass(frozen=True)
class FileState:
    """What tells whether a file has changed."""

    identity: str  # device, inode, size, modification time and status change time
    settled: bool  # whether any later change will alter the identity


def file_state(path: Path) -> FileState:
    """Return the state of a file; call this before the file is read."""
    now = time.time_ns()
    found = path.stat()
    identity = f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    return FileState(identity, now - max(found.st_mtime_ns, found.st_ctime_ns) >= CLOCK_RESOLUTION)


class VerifiedFiles:
    """The records of one text file; errors of reading or writing it cost time and nothing else."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._used: set[str] = set()

    def lookup(self, state: FileState, purpose: str) -> str | None:
        """Return what was recorded for a file in this state and for a purpose, or None."""
        key = _key(state, purpose)
        self._used.add(key)
        return self._values.get(key)

    def record(self, state: FileState, purpose: str, value: str = "") -> None:
        """Record a value, in one line of text, for a file that was in this state before it was read."""
        if self._path is None or not state.settled:
            return
        key = _key(state, purpose)
        self._used.add(key)
        self._values[key] = value
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Neither a link is followed nor a pipe waited for.
            flags = os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags, 0o666)
            try:
                # The line break comes first: a line that a full disk cut off must not damage the next.
                os.write(handle, f"\n{_line(key, value)}\n".encode())
            finally:
                os.close(handle)

    def compact(self) -> None:
        """Drop the records that were not used since this object was created, if most were not."""
        used = sorted(self._used & self._values.keys())
        if self._path is None or 2 * len(used) >= len(self._values):
            return
        with suppress(OSError, InputError):
            write_text(self._path, "".join(f"{_line(key, self._values[key])}\n" for key in used))

    @cached_property
    def _values(self) -> dict[str, str]:
        if self._path is None:
            return {}
        try:
            check_own(self._path)
            lines = self._path.read_text(encoding="utf-8", errors="replace").split("\n")
        except (OSError, InputError):
            return {}
        parts = (line.split(" ", 2) for line in lines)
        return {
            part[0]: part[2] for part in parts if len(part) == 3 and _line(part[0], part[2]) == " ".join(part)
        }


_current = VerifiedFiles(None)


def use(scratch: Path | None) -> None:
    """Keep the records of this process in a scratch folder from now on; None keeps nothing."""
    global _current
    _current = VerifiedFiles(scratch / NAME if scratch else None)


def current() -> VerifiedFiles:
    """Return the records that `use` has named last, or an object without any."""
    return _current


def remembered_digest(path: Path, state: FileState) -> str:
    """Return the SHA-256 of a file in this state, hashed only if no earlier process recorded it."""
    found = _current.lookup(state, "sha256")
    if found is None:
        found = file_digest(path)
        _current.record(state, "sha256", found)
    return found


def _key(state: FileState, purpose: str) -> str:
    # Names of files may hold bytes that are not UTF-8.
    return sha256(f"{state.identity}\n{purpose}".encode(errors="surrogateescape")).hexdigest()


def _line(key: str, value: str) -> str:
    return f"{key} {sha256(f'{key} {value}'.encode()).hexdigest()[:16]} {value}"
