"""Files that are either whole or not there, and their digests.

Every artifact is written under a temporary name, synced to the disk and renamed, so
that a killed writer never leaves a half-written file under a final name.
"""

import errno
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fne.core.errors import InputError

UNWRITABLE = (
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file name that becomes `path` when the block succeeds.

    What stood at `path` before is never opened for writing, only unlinked: it may be a
    link into a cache that a whole team shares.
    """
    with said_clearly(path):
        temporary = _temporary(path)
        try:
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block succeeds."""
    with said_clearly(path):
        temporary = _temporary(path)
        try:
            temporary.mkdir()
            yield temporary
            sync(temporary)
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
            temporary.replace(path)
            sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def said_clearly(path: Path) -> Iterator[None]:
    """Turn the errors of a full disk, or of one that we may not write to, into one that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise InputError(f"{path}: {error.strerror}; free some space and run again") from None
        if error.errno in UNWRITABLE:
            raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
        raise


def is_alive(process: int) -> bool:
    """Tell whether a process of this number runs on this machine, whoever owns it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 text file, or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _temporary(path: Path) -> Path:
    """Return a name that no other process uses, and remove what killed ones left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        writer = left.name.split(".")[-2]
        if writer.isdigit() and (int(writer) == os.getpid() or not is_alive(int(writer))):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
