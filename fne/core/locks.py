"""Exclusive file locks between processes.

A lock belongs to an open file and ends with its process, so the lock of a dead process is free. The file
holds the process id of the owner, which those who wait can show. The owner may remove the file: a process
that then gets the lock of the removed file notices that and locks the new one.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fne.core.files import check_own, readable_os_errors

# Between two attempts of a process that waits.
WAIT_SECONDS = 0.1


class FileLock:
    """The lock of one file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "lock"
        >>> first, second = FileLock(path), FileLock(path)
        >>> first.acquire(), second.acquire(), second.owner() == str(os.getpid())
        (True, False, True)
        >>> first.release()
        >>> second.acquire()
        True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Take the lock if it is free, without waiting; return whether this object now holds it."""
        with readable_os_errors(self.path):
            while (handle := self._open()) is not None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if self._is_current(handle):
                        os.ftruncate(handle, 0)
                        os.pwrite(handle, str(os.getpid()).encode(), 0)
                        self._handle = handle
                        return True
                except BlockingIOError:
                    return False
                finally:
                    if self._handle != handle:
                        os.close(handle)
        return False

    def release(self) -> None:
        """Give the lock back, if this object holds it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def owner(self) -> str:
        """Return the process id of the last owner; empty if there is none, or not yet."""
        try:
            text = self.path.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return ""
        return text if text.isdigit() else ""

    def _open(self) -> int | None:
        """Open the file, which may not exist yet; None if its owner removes the folder at this moment."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check_own(self.path)
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            return None

    def _is_current(self, handle: int) -> bool:
        """Return whether the path still names the locked file: its last owner may have removed it."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(handle))
        except FileNotFoundError:
            return False


@contextmanager
def locked(path: Path, activity: str, log: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock while the block runs; those who wait log that its owner does this `activity`."""
    lock = FileLock(path)
    logged = False
    while not lock.acquire():
        owner = lock.owner()
        if owner and not logged:
            log(waiting_message(owner, activity))
            logged = True
        time.sleep(WAIT_SECONDS)
    try:
        yield
    finally:
        lock.release()


def waiting_message(owner: str, activity: str) -> str:
    """Return the line that says which process is waited for."""
    return f"waiting for process {owner}, which {activity}"
