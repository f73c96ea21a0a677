"""Objects under the digests of their contents: a remote, or the cache of this machine.

What DVC remembers about a remote is not asked: after an interrupted push it can be wrong. The
remote itself is listed, and read where that is needed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from tqdm import tqdm

from fne.core.errors import InputError

PREFIX = 2  # the leading digits of a digest that name its folder
BLOCK = 1 << 20
Item = TypeVar("Item")
Result = TypeVar("Result")


class Depot:
    """One place with objects."""

    def __init__(self, name: str, odb: Any) -> None:
        self.name = name
        self.odb = odb
        self.url: str = odb.fs.unstrip_protocol(odb.path)

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those objects among `oids` that are there."""
        wanted = set(oids)
        with self._said_clearly():
            self.odb.fs.fs.invalidate_cache()
            folders = sorted({oid[:PREFIX] for oid in wanted})
            listings = self._in_parallel("listing", self._list, folders)
            return {oid: size for listing in listings for oid, size in listing.items() if oid in wanted}

    def digests(self, oids: Iterable[str]) -> dict[str, str]:
        """Return the MD5 of the contents of objects; nothing for one that is not there any more."""
        chosen = sorted(set(oids))
        with self._said_clearly():
            return dict(zip(chosen, self._in_parallel("reading", self._digest, chosen), strict=True))

    def read(self, oid: str) -> bytes | None:
        """Return a small object's content, or None if it is not there or not what its name says."""
        try:
            with self._said_clearly(), self.odb.fs.open(self.path(oid), "rb") as file:
                content: bytes = file.read()
        except FileNotFoundError:
            return None
        return content if _md5(content).hexdigest() == plain(oid) else None

    def path(self, oid: str) -> str:
        """Return where an object is, or would be."""
        path: str = self.odb.oid_to_path(oid)
        return path

    def _list(self, prefix: str) -> dict[str, int]:
        fs = self.odb.fs
        try:
            entries = fs.ls(fs.join(self.odb.path, prefix), detail=True)
        except FileNotFoundError:
            return {}
        return {
            prefix + fs.name(entry["name"].rstrip("/")): entry["size"]
            for entry in entries
            if entry["type"] == "file"
        }

    def _digest(self, oid: str) -> str:
        digest = _md5()
        try:
            with self.odb.fs.open(self.path(oid), "rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
        except FileNotFoundError:
            return ""
        return str(digest.hexdigest())

    def _in_parallel(self, what: str, do: Callable[[Item], Result], items: list[Item]) -> list[Result]:
        with ThreadPoolExecutor(self.odb.fs.jobs) as pool:
            # No bar where nobody watches.
            return list(
                tqdm(pool.map(do, items), f"{what} {self.name}", len(items), leave=False, disable=None)
            )

    @contextmanager
    def _said_clearly(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, click.ClickException, AssertionError):
            raise
        except Exception as error:  # SSH and S3 clients each have errors of their own
            reason = " ".join(f"{error}".split())[:200] or type(error).__name__
            raise InputError(
                f"remote '{self.name}' ({self.url}) cannot be read: {reason}; "
                "check `dvc remote list`, the network and your rights"
            ) from None


def plain(oid: str) -> str:
    """Return the digest in an object's name."""
    return oid.removesuffix(".dir")


def _md5(content: bytes = b"") -> Any:
    # DVC names objects by MD5; this protects from accidents, not from attackers.
    return hashlib.md5(content, usedforsecurity=False)
