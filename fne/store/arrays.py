"""Single-file artifacts: a few named arrays in one HDF5 file that describes itself.

Text is kept as UTF-8 strings. The file ends with a seal, the SHA-256 of all that comes
before it, which HDF5 passes over and reading checks first: HDF5 itself does not notice
a flipped bit in a value, and one in its own structures can keep it busy for ever.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.store.files import replacing
from fne.store.lineage import Artifact, Lineage, describe

FORMAT = "fne-arrays"
VERSION = 1
DESCRIPTION = "description"
SEAL = b"fne-sha256:"


@dataclass(frozen=True)
class Arrays:
    """The arrays of a file, all in memory, and what the file says about itself."""

    artifact: Artifact
    values: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]

    def texts(self, name: str) -> list[str]:
        """Return an array of strings as a list of `str`."""
        return [value.decode() for value in self.values[name].tolist()]


def write_arrays(
    path: Path,
    name: str,
    arrays: Mapping[str, np.ndarray | Sequence[str]],
    settings: dict[str, Any],
    lineage: Lineage,
) -> None:
    """Write the artifact `name` to one HDF5 file."""
    description = {"format": FORMAT, "version": VERSION, **describe(name, settings, lineage)}
    # A dataset and not an attribute: attributes end at 64 kB.
    content: dict[str, np.ndarray | str] = {DESCRIPTION: json.dumps(description, ensure_ascii=False)}
    values = {key: _storable(value) for key, value in arrays.items()}
    with replacing(path) as temporary:
        temporary.write_bytes(seal(file_image(content | values)))


def read_arrays(path: Path, name: str | None = None) -> Arrays:
    """Read the artifact `name`, or any, from one HDF5 file, checking its seal.

    Raises:
        InputError: if the file is missing, damaged, of another kind or of a newer format.
    """
    content = _unsealed(path)
    try:
        with h5py.File(BytesIO(content), "r") as file:
            refuse_foreign_storage(path, file)
            description = json.loads(file[DESCRIPTION][()])
            version = (description["format"], description["version"])
            if version[0] != FORMAT or version[1] > VERSION:
                raise InputError(
                    f"{path}: has format {version[0]} {version[1]}; this version reads {FORMAT} {VERSION}"
                )
            values = {key: file[key][()] for key in file if key != DESCRIPTION}
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not one of ours ({error}); remove it and run `dvc repro`") from None
    if name is not None and description["name"] != name:
        raise InputError(f"{path}: expected {name}, found {description['name']}")
    digest = hashlib.sha256(seal(content)).hexdigest()
    artifact = Artifact(path, description["name"], digest, description["settings"], description["lineage"])
    return Arrays(artifact, values)


def seal(content: bytes) -> bytes:
    """Return content with its seal."""
    return content + SEAL + hashlib.sha256(content).hexdigest().encode()


def file_image(datasets: Mapping[str, np.ndarray | str], **options: int) -> bytes:
    """Return the bytes of an HDF5 file with some datasets.

    Files are made in memory and written by ourselves, because HDF5 that meets a full disk
    can bring the process down when it closes the file.
    """
    with h5py.File("image", "w", driver="core", backing_store=False, **options) as file:
        for name, value in datasets.items():
            file.create_dataset(name, data=value)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def refuse_foreign_storage(path: Path, file: h5py.File) -> None:
    """Refuse an HDF5 file whose contents would come from elsewhere on the disk."""
    for key in file:
        link = file.get(key, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise InputError(f"{path}: '{key}' is a link out of the file; such files are refused")
        dataset = file[key]
        if isinstance(dataset, h5py.Dataset) and (dataset.is_virtual or dataset.external):
            raise InputError(f"{path}: '{key}' is stored outside the file; such files are refused")


def _unsealed(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it")
    content = path.read_bytes()
    inner = content[: -len(SEAL) - 64]
    if content != seal(inner):
        raise InputError(f"{path}: damaged or not one of ours; remove it and run `dvc repro`")
    return inner


def _storable(value: np.ndarray | Sequence[str]) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    return np.array([text.encode() for text in value], dtype=h5py.string_dtype())
