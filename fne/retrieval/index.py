"""A folder of photos that nobody captioned, ready to be searched.

What was found out about the files and the rows of the images are kept in the scratch
folder, the rows under the digests of the images: a renamed or copied photo is known
already, a deleted one is no longer asked for, and only new ones are computed. Their
activations go to the scratch folder one by one, so that a killed search loses nothing
but the images that were under way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from fne.core.errors import InputError
from fne.datasets.examine import examine_all
from fne.datasets.folder import read_folder
from fne.datasets.remember import memory
from fne.retrieval.turns import in_turn
from fne.store.catalog import Image
from fne.store.files import text_digest
from fne.store.layout import Layer, plan_shards
from fne.store.lineage import Artifact
from fne.store.rows import Rows
from fne.store.writer import write_rows

STORE = "folder_images"
SHARD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Maker:
    """How rows are made.

    Attributes:
        layers: the layers of a row.
        dtype: the type of its values.
        prepare: called first, with all images that need a row and their folder.
        rows: from digests of these images to rows.
    """

    layers: list[Layer]
    dtype: str
    prepare: Callable[[Sequence[Image], Path], None]
    rows: Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Folder:
    """The images of a folder, sorted by their paths below it, and the files that are no images."""

    path: Path
    images: list[Image]
    unreadable: dict[str, str]


def list_folder(path: Path, workers: int, scratch: Path) -> Folder:
    """Look at every image file of a folder; those that are remembered and unchanged are not read again.

    Raises:
        InputError: if there is no such folder, or not a single image in it.
    """
    if not path.is_dir():
        fault = "is not a folder" if path.exists() else "no such folder"
        raise InputError(f"{path}: {fault}; name a folder of photos")
    reading = read_folder(path, [])
    for words, count in reading.counts.items():
        _say(f"{path}: {count} {words}")
    names = [record.id for record in reading.records]
    files = [path.absolute() / name for name in names]
    findings = examine_all(files, workers, memory(scratch / "search", path))
    images, unreadable = [], {}
    for name, file in zip(names, files, strict=True):
        found = findings[file]
        if found.reason is None:
            images.append(Image(name, name, found.sha256, found.bytes, found.width, found.height))
        else:
            unreadable[name] = found.reason
    if not images:
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(unreadable.items())[:3])
        raise InputError(f"{path}: no images in it{reasons}")
    return Folder(path, images, unreadable)


def index_folder(
    folder: Folder, space: str, origin: Artifact, scratch: Path, open_maker: Callable[[], Maker]
) -> Rows:
    """Return a store with a row for every image of a folder, by the digests of the images.

    Args:
        folder: the images.
        space: what the rows are, for telling indexes of one folder apart.
        origin: what the rows depend on; those that were made with another one are not used.
        scratch: the scratch folder.
        open_maker: called where rows must be made.
    """
    place = scratch / "search" / text_digest(f"{folder.path.resolve()}\n{space}")[:16]
    settings = {"folder": str(folder.path.resolve()), "space": space, origin.name: origin.digest}
    index = _known(place, settings)
    if index and not _missing(folder, index):
        return index
    with in_turn(place.with_suffix(".lock"), "indexes the same folder", _say):
        # Whoever had the lock before may have made all that is needed here.
        index = _known(place, settings)
        missing = _missing(folder, index)
        if index and not missing:
            return index
        maker = open_maker()
        maker.prepare(missing, folder.path)
        shards = _shards(sorted({image.sha256 for image in folder.images}), maker, index)
        write_rows(place, STORE, maker.layers, maker.dtype, shards, settings, {})
        return _open(place)


def _missing(folder: Folder, index: Rows | None) -> list[Image]:
    """Return the images without a row, one for each content."""
    known = set(index.ids) if index else set()
    by_digest = {image.sha256: image for image in folder.images}
    return [image for digest, image in by_digest.items() if digest not in known]


def _shards(
    digests: Sequence[str], maker: Maker, index: Rows | None
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    width = sum(layer.features for layer in maker.layers)
    known = set(index.ids) if index else set()
    for number, ids in plan_shards(digests, 1 + len(digests) * width * 4 // SHARD_BYTES).items():
        is_new = np.array([digest not in known for digest in ids])
        made = maker.rows([digest for digest in ids if digest not in known])
        rows = np.empty((len(ids), width), dtype=made.dtype)
        rows[is_new] = made
        if index:
            rows[~is_new] = index.read([digest for digest in ids if digest in known])
        yield number, ids, rows


def _known(place: Path, settings: dict[str, str]) -> Rows | None:
    """Return an index that is whole and was made with these settings; any other is made again."""
    try:
        index = _open(place)
    except (InputError, FileNotFoundError):  # the second, if another search replaces it at this moment
        return None
    return index if index.artifact.settings == settings else None


def _open(place: Path) -> Rows:
    """Open an index and map all of it, so that it stays readable when another search replaces it."""
    index = Rows.open(place, STORE)
    index.read([shard.ids[0] for shard in index.shards])
    return index


def _say(message: str) -> None:
    click.echo(message, err=True)
