"""The index of a folder of photos, so that it can be searched without captions.

The index is a store of rows in the scratch folder, keyed by the digests of the images: a renamed or copied
photo is in it already, and only new ones are computed. Their activations are saved one by one, so a killed
search loses only the images that were being computed.

An `IndexedFolder` never changes. In a server, `FolderWatch` notices files that are added, changed or removed
by looking at the folder again and again, which also works on network drives. `FolderState` then replaces the
index as a whole, and searches use the old one until then.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.locks import locked
from fne.core.progress import Progress
from fne.core.terminal import say
from fne.datasets.examine_images import examine_all, findings_file
from fne.datasets.readers.folder import SUFFIXES, files_below, read_folder
from fne.search.open_project import Project, Space
from fne.store.artifact import Artifact
from fne.store.catalog import Image
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows

STORE = "folder_images"
SHARD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class RowSource:
    """Computes the rows of images."""

    layers: list[Layer]
    dtype: str
    prepare: Callable[[Sequence[Image], Path], None]  # called first, with all images that need rows
    rows: Callable[[Sequence[str]], np.ndarray]  # maps digests of these images to their rows


@dataclass(frozen=True)
class Folder:
    """The images of a folder, sorted by relative path, and the files that could not be read."""

    path: Path
    images: list[Image]
    unreadable: dict[str, str]

    @property
    def name(self) -> str:
        """What an answer calls it."""
        return str(self.path)

    def file(self, image_id: str) -> Path:
        """Return the path of a photo."""
        return self.path / image_id

    def sentences(self, image_id: str) -> list[str]:
        """Return no captions."""
        return []


@dataclass(frozen=True)
class IndexedFolder:
    """A folder of photos with their rows, as far as they are needed."""

    folder: Folder
    embeddings: Space | None = None
    vectors: Space | None = None

    @cached_property
    def by_digest(self) -> dict[str, Image]:
        """The photos by the digests of their files; of equal ones the first."""
        return {image.sha256: image for image in reversed(self.folder.images)}

    @cached_property
    def by_name(self) -> dict[str, Image]:
        """The photos by relative path."""
        return {image.id: image for image in self.folder.images}

    @cached_property
    def version(self) -> str:
        """A digest of the names and contents of all photos."""
        lines = [f"{image.sha256} {image.id}" for image in self.folder.images]
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class Index:
    """What one index of a folder is made with."""

    kind: str  # the kind of rows, which distinguishes several indexes of one folder
    origin: Artifact  # rows made with another artifact are not used
    open_source: Callable[[], RowSource]  # called only if rows have to be computed


@dataclass
class FolderState:
    """What a server knows about a folder at the moment."""

    path: Path
    state: str = "reading"  # `reading`, `indexing`, `ready` or `failed`
    message: str | None = None  # why it failed
    progress: Progress | None = None
    index: IndexedFolder | None = None  # the last complete one, which is searched while a new one is made

    def as_dict(self) -> dict[str, Any]:
        """Return what the page shows."""
        shown, index = self.progress, self.index
        return {
            "name": self.path.resolve().name,
            "version": index.version if index else None,
            "state": self.state,
            "message": self.message,
            "done": shown.done if shown else None,
            "total": shown.total if shown else None,
            "photos": len(index.folder.images) if index else None,
            "unreadable": index.folder.unreadable if index else {},
        }

    def update(
        self, project: Project, embeddings: Index | None, vectors: Index | None, unfinished: Collection[str]
    ) -> None:
        """Index the folder as it is now, without `unfinished` files; without photos the index is removed."""
        self.state, self.progress = "reading", None
        try:
            folder = list_folder(self.path, project.runtime.workers, project.scratch, unfinished)
        except InputError:
            self.index = None
            raise
        self.state = "indexing"
        spaces = [
            index_space(folder, index, project.scratch, in_memory=True) if index else None
            for index in (embeddings, vectors)
        ]
        self.index = IndexedFolder(folder, *spaces)
        self.state, self.message = "ready", None

    def watch(self, progress: Progress) -> None:
        """Remember how far the extraction is."""
        self.progress = progress


class FolderWatch:
    """Tells whether image files of a folder were added, changed or removed.

    A file that is being copied into the folder counts only when two looks find it the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = self._used = file_states(path)
        self.unfinished: frozenset[str] = frozenset()

    def look(self) -> bool:
        """Return whether finished files differ from those of the last look that returned true."""
        found = file_states(self._path)
        finished = {name: state for name, state in found.items() if self._last.get(name) == state}
        self._last, self.unfinished = found, frozenset(found.keys() - finished.keys())
        changed = finished != self._used
        self._used = finished
        return changed


def list_folder(path: Path, workers: int, scratch: Path, skipped: Collection[str] = ()) -> Folder:
    """Read every image file of a folder but those `skipped`, by relative path; unchanged ones only once."""
    if not path.is_dir():
        fault = "not a folder" if path.exists() else "no such folder"
        raise InputError(f"{path}: {fault}; use the path of a folder with photos")
    reading = read_folder(path, [])
    for text, count in reading.counts.items():
        _log(f"{path}: {count} {text}")
    names = [record.id for record in reading.records if record.id not in skipped]
    files = [path.absolute() / name for name in names]
    findings = examine_all(files, workers, findings_file(scratch / "search", path))
    images, unreadable = [], {}
    for name, file in zip(names, files, strict=True):
        found = findings[file]
        if found.reason is None:
            images.append(Image(name, name, found.sha256, found.bytes, found.width, found.height))
        else:
            unreadable[name] = found.reason
    if not images:
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(unreadable.items())[:3])
        raise InputError(f"{path}: the folder has no readable images{reasons}")
    return Folder(path, images, unreadable)


def file_states(path: Path) -> dict[str, tuple[int, int, int, int]]:
    """Return inode, size and times of the image files of a folder, by relative path; none if it has none."""
    found = {}
    with suppress(InputError, OSError):  # a folder that cannot be listed
        for name in files_below(path):
            if Path(name).suffix.lower() in SUFFIXES:
                with suppress(OSError):  # removed meanwhile, or a link without a file
                    status = (path / name).stat()
                    found[name] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def index_space(folder: Folder, index: Index, scratch: Path, in_memory: bool = False) -> Space:
    """Return the rows of all photos of a folder, keyed by the digests of their files."""
    rows = index_folder(folder, index, scratch)
    ids, keys = [image.id for image in folder.images], [image.sha256 for image in folder.images]
    return Space(rows, ids, ids, keys, rows=rows.read_stored(keys) if in_memory else None)


def index_folder(folder: Folder, index: Index, scratch: Path) -> Rows:
    """Return a store with a row for each image of a folder, keyed by the digests of the images."""
    place = scratch / "search" / text_digest(f"{folder.path.resolve()}\n{index.kind}")[:16]
    origin = {index.origin.name: index.origin.digest}
    settings = {"folder": str(folder.path.resolve()), "space": index.kind, **origin}
    found = _open_matching(place, settings)
    if found and not _missing(folder, found):
        return found
    with locked(place.with_suffix(".lock"), "indexes the same folder", _log):
        # The previous owner of the lock may have computed everything that is needed.
        found = _open_matching(place, settings)
        missing = _missing(folder, found)
        if found and not missing:
            return found
        source = index.open_source()
        source.prepare(missing, folder.path)
        shards = _shards(sorted({image.sha256 for image in folder.images}), source, found)
        write_rows(place, STORE, source.layers, source.dtype, shards, settings, {})
        return _open(place)


def _missing(folder: Folder, index: Rows | None) -> list[Image]:
    """Return the images without a row, one per digest."""
    known = set(index.ids) if index else set()
    by_digest = {image.sha256: image for image in folder.images}
    return [image for digest, image in by_digest.items() if digest not in known]


def _shards(
    digests: Sequence[str], source: RowSource, index: Rows | None
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    width = sum(layer.features for layer in source.layers)
    known = set(index.ids) if index else set()
    for number, ids in plan_shards(digests, 1 + len(digests) * width * 4 // SHARD_BYTES).items():
        is_new = np.array([digest not in known for digest in ids])
        made = source.rows([digest for digest in ids if digest not in known])
        rows = np.empty((len(ids), width), dtype=made.dtype)
        rows[is_new] = made
        if index:
            rows[~is_new] = index.read([digest for digest in ids if digest in known])
        yield number, ids, rows


def _open_matching(place: Path, settings: dict[str, str]) -> Rows | None:
    """Return the index, or None if it is missing, damaged or made with other settings."""
    try:
        index = _open(place)
    except (InputError, FileNotFoundError):  # the latter if another search is replacing it
        return None
    return index if index.artifact.settings == settings else None


def _open(place: Path) -> Rows:
    """Open an index and map all its shards, so that it stays readable when another search replaces it."""
    index = Rows.open(place, STORE)
    index.read([shard.ids[0] for shard in index.shards])
    return index


def _log(message: str) -> None:
    say(message, err=True)
