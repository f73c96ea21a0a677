"""One process at a time: those that come later wait, and say for whom."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fne.store.files import said_clearly


@contextmanager
def in_turn(lock: Path, doing: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock while the block runs; the lock ends with its process, however that ends.

    Args:
        lock: the file. It stays: removing it would let two processes lock two files of one name.
        doing: what the owner does meanwhile, for those who wait.
        say: called at most once, if another process has the lock.
    """
    with said_clearly(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for process {os.pread(handle, 32, 0).decode()}, which {doing}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        with said_clearly(lock):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
