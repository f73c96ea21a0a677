"""Atomic writes, digests, and one wording for files that cannot be read or written.

Every artifact is written under a temporary name, synced to disk and then renamed. A killed
writer therefore never leaves an incomplete file under a final name.
"""

import errno
import glob
import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fne.core.errors import InputError

FULL_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
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
# How a formula begins, for the one or the other spreadsheet program.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# A dash, a number or a range of numbers.
NUMBER = re.compile(r"-|[+-]?[0-9]+(\.[0-9]+)?%?( to [+-]?[0-9]+(\.[0-9]+)?)?")
# Folders that may be nested in each other where all files of a folder are read.
MAX_DEPTH = 100
# What to do about an artifact that is missing.
FETCH = "run `dvc repro`, or `dvc pull` to fetch it"


@contextmanager
def replacing(path: Path, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary name of a file, or a temporary folder, that becomes `path` when the block succeeds.

    An existing file is unlinked and never opened for writing: it may be a link into a shared cache.
    """
    with readable_os_errors(path):
        temporary = _temporary(path)
        try:
            if folder:
                temporary.mkdir()
            yield temporary
            sync(temporary)
            if _deferral is None or path not in _deferral.outputs:
                _rename(temporary, path)
            else:
                _deferral.written[path] = temporary
        finally:
            if _deferral is None or temporary not in _deferral.written.values():
                _remove(temporary)


replacing_folder = partial(replacing, folder=True)


@dataclass
class _Deferral:
    """The outputs that keep their temporary names until all are published."""

    outputs: frozenset[Path]
    written: dict[Path, Path] = field(default_factory=dict)  # temporary name by output


_deferral: _Deferral | None = None


@contextmanager
def deferring(outputs: Iterable[Path], check: Callable[[], None]) -> Iterator[None]:
    """Publish outputs together at the end of the block.

    Within the block, `replacing` and `replacing_folder` leave `outputs` under temporary names. Then they are
    renamed if `check` returns, and removed if it or the block raises. Other files are written at once. If any
    output was written, those files among `outputs` that were not are of an earlier run, and are removed.
    """
    global _deferral
    before, _deferral = _deferral, _Deferral(frozenset(outputs))
    written = _deferral.written
    try:
        yield
        if written:
            check()
            for path in _deferral.outputs - written.keys():
                if not path.is_dir():
                    path.unlink(missing_ok=True)
        for path, temporary in list(written.items()):
            with readable_os_errors(path):
                _rename(temporary, path)
            del written[path]
    finally:
        _deferral = before
        for temporary in written.values():
            _remove(temporary)


@contextmanager
def readable_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of a full or unwritable disk into an `InputError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise InputError(f"{path}: {error.strerror}; free some space and run again") from None
        if error.errno in UNWRITABLE:
            raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
        raise


def missing_path(path: Path | str, advice: str = FETCH, what: str = "file") -> InputError:
    """Return the error for a path that does not exist.

    Example:
        >>> missing_path("photos", "name a folder of photos", "folder").message
        'photos: no such folder; name a folder of photos'
    """
    return InputError(f"{path}: no such {what}; {advice}")


def read_bytes(path: Path, advice: str = FETCH) -> bytes:
    """Return the content of a file."""
    with readable_read_errors(path, advice):
        check_regular(path)
        return path.read_bytes()


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with readable_read_errors(path):
        check_regular(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def check_regular(path: Path) -> None:
    """Refuse a pipe, a device or a socket, which could block or never end; links are followed."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise InputError(f"{path}: not a regular file, but a {kind}, which is not read; use a regular file")


def check_own(path: Path) -> None:
    """Refuse a link, pipe or folder in the place of a file of the scratch folder.

    A link could lead to a file of the user, a pipe could block, and a folder cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(
            f"{path}: a file of the scratch folder is expected here, found something else; "
            f"remove it with `rm -r {shlex.quote(str(path))}`"
        )


def files_in(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its subfolders, sorted by folder; links to folders are not followed."""
    pending = [(folder, 0)]
    while pending:
        place, depth = pending.pop()
        check_depth(place, depth)
        for entry in sorted(os.scandir(place), key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                pending.append((Path(entry.path), depth + 1))
            elif os.path.isfile(entry.path):  # noqa: PTH113  # False for a link that leads to itself
                yield Path(entry.path)


def check_depth(folder: Path, depth: int) -> None:
    """Refuse folders that are nested too deeply: each level costs memory, and names have a maximum length."""
    if depth > MAX_DEPTH:
        raise InputError(
            f"{str(folder)[:200]}…: more than {MAX_DEPTH} folders are nested here, which is the limit; "
            "remove them or name another folder"
        )


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def plain_cell(text: str) -> str:
    """Return the text of a CSV cell that no spreadsheet reads as a formula; numbers stay as they are.

    Example:
        >>> plain_cell("=HYPERLINK(1)"), plain_cell("-1.5"), plain_cell("a dog")
        ("'=HYPERLINK(1)", '-1.5', 'a dog')
    """
    return f"'{text}" if text.lstrip().startswith(FORMULA) and not NUMBER.fullmatch(text) else text


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_alive(process: int) -> bool:
    """Return whether a process with this id runs on this machine, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def readable_read_errors(path: Path, advice: str = FETCH) -> Iterator[None]:
    """Turn errors of a file that cannot be read into an `InputError`."""
    try:
        yield
    except FileNotFoundError:
        raise missing_path(path, advice) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _rename(temporary: Path, path: Path) -> None:
    """Give a file or folder its final name, in place of what is there."""
    if temporary.is_dir() and (path.exists() or path.is_symlink()):
        _remove(path)
    temporary.replace(path)
    sync(path.parent)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """Return a name that no other process uses, and remove the files of killed writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        writer = left.name.split(".")[-2]
        if writer.isdigit() and (int(writer) == os.getpid() or not is_alive(int(writer))):
            _remove(left)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
