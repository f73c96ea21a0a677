"""Which shards were found whole before, remembered from process to process in the scratch folder.

Hashing takes about a second a gigabyte, which a training that starts again need not
wait for. A shard counts as the same file as long as its device, inode, size and time
of change stay the same. What changes bytes behind the file system's back, such as a
failing disk, is for `fne verify` to find: it never asks this memory.

The memory is a file of lines, each the digest of such a state. A line is appended in a
single write, so processes can share the file; a damaged line is that of no state.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from fne.core.errors import InputError
from fne.core.runtime import load_runtime
from fne.store.files import text_digest

PARAMS = Path("params.yaml")
# A file that changes twice within the resolution of its disk's clock keeps its time of change.
CLOCK_RESOLUTION = 2 * 10**9  # nanoseconds


def state(path: Path, sha256: str) -> str:
    """Return the digest of a file's state and of the digest that its content must have."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it") from None
    return text_digest(f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {sha256}")


def recall() -> frozenset[str]:
    """Return all remembered states; none without a project or a memory."""
    memory = _memory()
    if memory is None or not memory.is_file():
        return frozenset()
    try:
        return frozenset(memory.read_text(encoding="ascii", errors="replace").split())
    except OSError:
        return frozenset()


def remember(path: Path, known: str) -> None:
    """Remember the state of a file that was found whole; where that is impossible it only costs time."""
    memory = _memory()
    if memory is None or time.time_ns() - path.stat().st_mtime_ns < CLOCK_RESOLUTION:
        return
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(memory, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # The line break comes first, so that a line which a full disk cut off spoils no other.
            os.write(handle, f"\n{known}\n".encode())
        finally:
            os.close(handle)


def _memory() -> Path | None:
    try:
        return load_runtime(PARAMS).scratch_folder() / "verified"
    except InputError:
        return None
