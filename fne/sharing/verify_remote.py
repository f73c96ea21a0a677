"""The check that a remote has every object that a project tracks, and the repair of one that has not.

The listings of tracked folders are always read: they say which files belong to a folder. `dvc.lock` records
the size of a single file, but of a folder only the total. If a size is wrong or unknown, contents are read
until the wrong file is found. That finds everything that an interrupted transfer leaves behind. Bits that
changed on the remote's disk are found only by reading all contents.

DVC's own records about a remote are not used: after an interrupted push they can be wrong.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from fne.core.dvc import PIPELINE, DvcError, bytes_md5, copy_objects, dvc_errors, one_line, parse_listing
from fne.core.errors import InputError
from fne.core.progress import tracked

HASH = "md5"
PREFIX = 2  # the leading digits of a digest, which name the folder of an object
BLOCK = 1 << 20  # bytes that are read at once

MISSING = "is missing"
DAMAGED = "is damaged"
# Why an object cannot be sent.
NOT_CACHED = "the local cache does not have it"
CACHE_DAMAGED = " is damaged"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TrackedOutput:
    """A file or folder that DVC tracks: its path, the name of its object, and the size of all its files."""

    path: str
    oid: str
    size: int | None

    @property
    def is_folder(self) -> bool:
        """Whether the object is the listing of a folder."""
        return self.oid.endswith(".dir")


@dataclass
class TrackedOutputs:
    """What a colleague would pull, and what is not expected on the remote."""

    # By the names of their objects; of several paths of one object, the first.
    outputs: dict[str, TrackedOutput] = field(default_factory=dict)
    without_digest: list[str] = field(default_factory=list)  # outputs of stages that have not run
    imported: set[str] = field(default_factory=set)  # outputs of other repositories
    unreadable: list[str] = field(default_factory=list)  # commits that DVC cannot read, with the reason


@dataclass(frozen=True)
class Fault:
    """An object that a colleague could not pull, and what is wrong with it."""

    path: str
    oid: str
    what: str


@dataclass
class Findings:
    """The result of a check."""

    paths: dict[str, str] = field(default_factory=dict)  # the path of each object by its name
    size: int = 0  # the bytes of all objects
    read: int = 0  # how many objects were read
    faults: list[Fault] = field(default_factory=list)  # the objects that are missing or damaged


class ObjectStore:
    """Objects under the digests of their contents: a remote, or the cache of this machine."""

    def __init__(self, name: str, odb: Any) -> None:
        self.name = name
        self.odb = odb
        self.url: str = odb.fs.unstrip_protocol(odb.path)

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those objects among `oids` that exist."""
        wanted = set(oids)
        with self._readable_errors():
            self.odb.fs.fs.invalidate_cache()
            folders = sorted({oid[:PREFIX] for oid in wanted})
            listings = self._in_parallel("listing", self._list, folders)
            return {oid: size for listing in listings for oid, size in listing.items() if oid in wanted}

    def digests(self, oids: Iterable[str]) -> dict[str, str]:
        """Return the MD5 of the contents of objects; an empty string for one that no longer exists."""
        chosen = sorted(set(oids))
        with self._readable_errors():
            return dict(zip(chosen, self._in_parallel("reading", self._digest, chosen), strict=True))

    def read(self, oid: str) -> bytes | None:
        """Return the content of a small object, or None if it is missing or damaged."""
        try:
            with self._readable_errors(), self.odb.fs.open(self.path(oid), "rb") as file:
                content: bytes = file.read()
        except FileNotFoundError:
            return None
        return content if bytes_md5(content) == digest_of(oid) else None

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
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with self.odb.fs.open(self.path(oid), "rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
        except FileNotFoundError:
            return ""
        return digest.hexdigest()

    def _in_parallel(self, what: str, do: Callable[[Item], Result], items: list[Item]) -> list[Result]:
        with ThreadPoolExecutor(self.odb.fs.jobs) as pool:
            return list(
                tracked(pool.map(do, items), f"{what} {self.name}", len(items), "object", leave=False)
            )

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, click.ClickException, AssertionError):
            raise
        except Exception as error:  # SSH and S3 clients have exceptions of their own
            raise InputError(
                f"remote '{self.name}' ({self.url}) cannot be read: {one_line(error)}; "
                "check `dvc remote list`, the network and your permissions"
            ) from None


def remote_store(repo: Any, name: str) -> ObjectStore:
    """Return a remote of an open project."""
    try:
        with dvc_errors():
            return ObjectStore(name, repo.cloud.get_remote_odb(name, "verify"))
    except DvcError as error:
        known = ", ".join(sorted(repo.config["remote"])) or "none; add one with `dvc remote add NAME URL`"
        raise InputError(f"remote '{name}': {error}; the remotes are: {known}") from None


def digest_of(oid: str) -> str:
    """Return the digest in the name of an object."""
    return oid.removesuffix(".dir")


def tracked_outputs(
    repo: Any, remote: str, revisions: Sequence[str] = (), all_commits: bool = False
) -> TrackedOutputs:
    """Return what a colleague would pull from a remote, by `dvc.lock` and `.dvc` files.

    Not expected are outputs that DVC does not send: that Git keeps (`cache: false`), that are not to be
    pushed (`push: false`), that belong to another remote, or that were imported from another repository. Nor
    are those of a pipeline in a subfolder that was never run, such as that of an unused task.

    Args:
        revisions: the commits to look at; without any, the workspace and the last commit.
    """
    tracked = TrackedOutputs()
    commits = list(revisions) or _last_commit(repo)
    try:
        with dvc_errors():
            for revision in repo.brancher(revs=commits, all_commits=all_commits, workspace=not revisions):
                _add_outputs(repo, revision if revision != "workspace" else "", remote, tracked)
    except DvcError as error:
        raise InputError(f"{error}; run `dvc status` and fix that first") from None
    return tracked


def check_objects(
    outputs: Iterable[TrackedOutput], remote: ObjectStore, cache: ObjectStore, read: bool
) -> Findings:
    """Compare a remote with what a project tracks; `read` all contents, or only where sizes leave a doubt.

    The local cache has listings of folders that the remote lacks.
    """
    found = Findings()
    expected: dict[str, int | None] = {}
    folders = []  # the size of each, and the objects of its files
    for output in outputs:
        found.paths.setdefault(output.oid, output.path)
        if output.is_folder:
            folders.append(_folder(output, remote, cache, found))
        else:
            expected[output.oid] = output.size
    files = expected.keys() | {oid for _, oids in folders for oid in oids}
    sizes = remote.sizes(files)
    found.size += sum(sizes.values())
    found.faults += [Fault(found.paths[oid], oid, MISSING) for oid in sorted(files - sizes.keys())]
    doubtful = set(sizes) if read else {oid for oid in expected if oid in sizes and expected[oid] is None}
    for size, oids in folders:
        if sum(sizes.get(oid, 0) for oid in oids) != size:
            doubtful.update(oid for oid in oids if oid in sizes)
    for oid in sorted(sizes):
        size = expected.get(oid)
        if size is not None and size != sizes[oid]:
            found.faults.append(Fault(found.paths[oid], oid, f"has {sizes[oid]:,} bytes instead of {size:,}"))
            doubtful.discard(oid)
    _check_contents(doubtful, remote, found)
    return found


def send_again(faults: Iterable[Fault], cache: ObjectStore, remote: ObjectStore) -> dict[str, str]:
    """Send objects from the cache, each read first, so no damaged one is sent; return why others failed.

    The listing of a folder is sent after all files, as DVC does: if a listing exists, so should the files.
    """
    wanted = {fault.oid: fault for fault in faults}
    digests = cache.digests(cache.sizes(wanted))
    intact = {oid for oid, digest in digests.items() if digest == digest_of(oid)}
    listings = {oid for oid in intact if oid != digest_of(oid)}
    try:
        for oid in intact:
            if not wanted[oid].what.startswith(MISSING):
                with suppress(FileNotFoundError):
                    remote.odb.delete(oid)
        for oids in (sorted(intact - listings), sorted(listings)):
            if oids:
                copy_objects(oids, cache.odb, remote.odb, f"sending to {remote.name}")
    except Exception as error:  # SSH and S3 clients have exceptions of their own
        raise InputError(
            f"remote '{remote.name}' ({remote.url}) cannot be written to: {one_line(error)}; "
            "check your permissions there"
        ) from None
    return {
        oid: f"{cache.path(oid)}{CACHE_DAMAGED}" if oid in digests else NOT_CACHED
        for oid in sorted(wanted.keys() - intact)
    }


def _add_outputs(repo: Any, revision: str, remote: str, tracked: TrackedOutputs) -> None:
    try:
        with dvc_errors():
            outs = list(repo.index.outs)
    except DvcError as error:
        if not revision:
            raise
        # If DVC cannot read an old commit, nobody can pull it either.
        tracked.unreadable.append(f"{revision[:12]}: {error}")
        return
    pipelines_run = {str(Path(repo.root_dir, PIPELINE)), *(out.stage.path for out in outs if out.hash_info)}
    for out in outs:
        if not out.use_cache or not out.can_push or (out.remote and out.remote != remote):
            continue
        path = "/".join(out.index_key[1])
        if out.stage.is_repo_import:
            tracked.imported.add(path)
        elif not out.hash_info:
            tracked.without_digest += [path] * (not revision and out.stage.path in pipelines_run)
        elif out.hash_name != HASH:
            raise InputError(
                f"{path}: has a digest of DVC 2 ({out.hash_name}); run `dvc commit --force {path}`"
            )
        else:
            output = TrackedOutput(path, out.hash_info.value, out.meta.size)
            tracked.outputs.setdefault(output.oid, output)


def _last_commit(repo: Any) -> list[str]:
    """Return the commit that a clone starts from; none before the first commit."""
    try:
        with dvc_errors():
            return [repo.scm.get_rev()]
    except DvcError:
        return []


def _folder(
    output: TrackedOutput, remote: ObjectStore, cache: ObjectStore, found: Findings
) -> tuple[int | None, list[str]]:
    """Read the listing of a folder and record the paths of its files; return its size and their objects."""
    content = remote.read(output.oid)
    if content is None:
        what = DAMAGED if remote.sizes([output.oid]) else MISSING
        content = cache.read(output.oid)
        unknown = "" if content else ", and the local cache does not have this listing of a folder either"
        found.faults.append(Fault(output.path, output.oid, what + unknown))
    found.read += 1
    if content is None:
        return 0, []
    found.size += len(content)
    listing = parse_listing(content, f"{output.path} ({output.oid})")
    for path, md5 in listing.items():
        found.paths.setdefault(md5, f"{output.path}/{path}")
    return output.size, list(listing.values())


def _check_contents(oids: Iterable[str], remote: ObjectStore, found: Findings) -> None:
    digests = remote.digests(oids)
    found.read += len(digests)
    for oid, digest in digests.items():
        if digest != digest_of(oid):
            found.faults.append(Fault(found.paths[oid], oid, DAMAGED if digest else MISSING))
