"""The check that a remote really has what a project names.

The lists of folders are always read: they say which files belong to a folder. The size of a
single file is known from its name in `dvc.lock`, of a folder's files only the sum is; where
the sum is wrong, or nothing is known, contents are read until the wrong file is found. That
suffices for everything that an interrupted transfer leaves behind. Bits that changed on
the remote's disk are found by reading everything.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from fne.sharing.depot import Depot, plain
from fne.sharing.named import Out

MISSING = "is missing"
DAMAGED = "is damaged"


@dataclass(frozen=True)
class Fault:
    """An object that a colleague could not pull, and what is wrong with it."""

    path: str
    oid: str
    what: str


@dataclass
class Findings:
    """What a check found: the objects' names by their digests, their bytes, the faults."""

    paths: dict[str, str] = field(default_factory=dict)
    size: int = 0
    read: int = 0  # objects whose contents were read
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True)
class _Folder:
    size: int | None
    oids: list[str]  # one for each file; two files may be the same object


def check_objects(outs: Iterable[Out], remote: Depot, cache: Depot, read: bool) -> Findings:
    """Compare a remote with what is named.

    Args:
        outs: what is named.
        remote: the remote.
        cache: the local cache; asked for the lists of folders that the remote lacks.
        read: read all contents, not only where sizes leave a doubt.
    """
    found = Findings()
    expected: dict[str, int | None] = {}
    folders = []
    for out in outs:
        found.paths.setdefault(out.oid, out.path)
        if out.is_folder:
            folders.append(_folder(out, remote, cache, found))
        else:
            expected[out.oid] = out.size
    files = expected.keys() | {oid for folder in folders for oid in folder.oids}
    sizes = remote.sizes(files)
    found.size += sum(sizes.values())
    found.faults += [Fault(found.paths[oid], oid, MISSING) for oid in sorted(files - sizes.keys())]
    doubtful = set(sizes) if read else {oid for oid in expected if oid in sizes and expected[oid] is None}
    for folder in folders:
        if sum(sizes.get(oid, 0) for oid in folder.oids) != folder.size:
            doubtful.update(oid for oid in folder.oids if oid in sizes)
    for oid in sorted(sizes):
        size = expected.get(oid)
        if size is not None and size != sizes[oid]:
            found.faults.append(Fault(found.paths[oid], oid, f"has {sizes[oid]:,} bytes instead of {size:,}"))
            doubtful.discard(oid)
    _check_contents(doubtful, remote, found)
    return found


def _folder(out: Out, remote: Depot, cache: Depot, found: Findings) -> _Folder:
    """Read the list of a folder's files and note their names."""
    content = remote.read(out.oid)
    if content is None:
        what = DAMAGED if remote.sizes([out.oid]) else MISSING
        content = cache.read(out.oid)
        unknown = "" if content else ", and with it the list of the folder's files"
        found.faults.append(Fault(out.path, out.oid, what + unknown))
    found.read += 1
    if content is None:
        return _Folder(0, [])
    found.size += len(content)
    entries = json.loads(content)
    for entry in entries:
        found.paths.setdefault(entry["md5"], f"{out.path}/{entry['relpath']}")
    return _Folder(out.size, [entry["md5"] for entry in entries])


def _check_contents(oids: Iterable[str], remote: Depot, found: Findings) -> None:
    digests = remote.digests(oids)
    found.read += len(digests)
    for oid, digest in digests.items():
        if digest != plain(oid):
            found.faults.append(Fault(found.paths[oid], oid, DAMAGED if digest else MISSING))
