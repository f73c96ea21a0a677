"""The index of a folder of photos, so that it can be searched without captions.

The index is a store of rows in the scratch folder, keyed by the digests of the images. A
renamed or copied photo is therefore in the index already, a deleted one is ignored, and only
new ones are computed. Their activations are saved one by one, so a killed search loses only
the images that were being computed.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.locks import locked
from fne.core.terminal import say
from fne.datasets.examine_images import examine_all, findings_file
from fne.datasets.readers.folder import SUFFIXES, files_below, read_folder
from fne.store.artifact import Artifact
from fne.store.catalog import Image
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows

STORE = "folder_images"
SHARD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class RowSource:
    """Computes the rows of images.

    Attributes:
        layers: the layers of a row.
        dtype: the type of its values.
        prepare: called first, with all images that need a row and their folder.
        rows: maps digests of these images to their rows.
    """

    layers: list[Layer]
    dtype: str
    prepare: Callable[[Sequence[Image], Path], None]
    rows: Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Folder:
    """The images of a folder, sorted by relative path, and the files that could not be read."""

    path: Path
    images: list[Image]
    unreadable: dict[str, str]


def list_folder(path: Path, workers: int, scratch: Path, skipped: Collection[str] = ()) -> Folder:
    """Read every image file of a folder; unchanged files that were read before are not read again.

    Args:
        path: the folder.
        workers: the number of processes that decode images.
        scratch: the scratch folder.
        skipped: relative paths of files that are left out, such as those that are being written.

    Raises:
        InputError: if the folder does not exist or has no images.
    """
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


def index_folder(
    folder: Folder, space: str, origin: Artifact, scratch: Path, open_source: Callable[[], RowSource]
) -> Rows:
    """Return a store with a row for each image of a folder, keyed by the digests of the images.

    Args:
        folder: the images.
        space: the kind of rows, which distinguishes several indexes of one folder.
        origin: the artifact that the rows depend on; rows made with another one are not used.
        scratch: the scratch folder.
        open_source: called only if rows have to be computed.
    """
    place = scratch / "search" / text_digest(f"{folder.path.resolve()}\n{space}")[:16]
    settings = {"folder": str(folder.path.resolve()), "space": space, origin.name: origin.digest}
    index = _open_matching(place, settings)
    if index and not _missing(folder, index):
        return index
    with locked(place.with_suffix(".lock"), "indexes the same folder", _log):
        # The previous owner of the lock may have computed everything that is needed.
        index = _open_matching(place, settings)
        missing = _missing(folder, index)
        if index and not missing:
            return index
        source = open_source()
        source.prepare(missing, folder.path)
        shards = _shards(sorted({image.sha256 for image in folder.images}), source, index)
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
