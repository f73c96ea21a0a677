"""Single-file artifacts: a few named arrays in one HDF5 file that describes itself.

Text is kept as UTF-8 strings. The description holds the SHA-256 of every array, which
reading checks, because HDF5 itself does not notice a flipped bit.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.store.files import file_digest, replacing
from fne.store.lineage import Artifact, Lineage, describe

FORMAT = "fne-arrays"
VERSION = 1
DESCRIPTION = "description"


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
    values = {key: _storable(value) for key, value in arrays.items()}
    description = {
        "format": FORMAT,
        "version": VERSION,
        **describe(name, settings, lineage),
        "arrays": {key: _digest(value) for key, value in values.items()},
    }
    # A dataset and not an attribute: attributes end at 64 kB.
    content = {DESCRIPTION: json.dumps(description, ensure_ascii=False)} | values
    with replacing(path) as temporary:
        temporary.write_bytes(file_image(content))


def read_arrays(path: Path, name: str) -> Arrays:
    """Read the artifact `name` from one HDF5 file, checking every array's digest.

    Raises:
        InputError: if the file is missing, damaged, of another kind or of a newer format.
    """
    description, values = _load(path)
    if description["name"] != name:
        raise InputError(f"{path}: expected {name}, found {description['name']}")
    for key, expected in description["arrays"].items():
        found = _digest(values[key]) if key in values else "nothing"
        if found != expected:
            raise InputError(
                f"{path}: array '{key}' is damaged: expected {expected[:12]}…, found {found[:12]}…; "
                "remove the file and run `dvc repro`"
            )
    digest = file_digest(path)
    artifact = Artifact(path, name, digest, description["settings"], description["lineage"])
    return Arrays(artifact, values)


def describe_arrays(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the description of a file and the type and shape of each array, for people to read."""
    description, values = _load(path)
    kinds = {key: "text" if value.dtype.kind == "O" else str(value.dtype) for key, value in values.items()}
    return description, {key: f"{kinds[key]} {values[key].shape}" for key in values}


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


def _load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.exists():
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it")
    try:
        with h5py.File(path, "r") as file:
            refuse_foreign_storage(path, file)
            description = json.loads(file[DESCRIPTION][()])
            version = description["version"]
            if description["format"] == FORMAT and version <= VERSION:
                return description, {key: file[key][()] for key in file if key != DESCRIPTION}
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{path}: damaged or not one of ours ({error}); remove it and run `dvc repro`"
        ) from None
    raise InputError(
        f"{path}: has format {description['format']} {version}; this version reads {FORMAT} {VERSION}"
    )


def _storable(value: np.ndarray | Sequence[str]) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    return np.array([text.encode() for text in value], dtype=h5py.string_dtype())


def _digest(value: np.ndarray) -> str:
    if value.dtype.kind == "O":
        content = b"".join(len(text).to_bytes(8, "little") + text for text in value.tolist())
    else:
        content = np.ascontiguousarray(value).tobytes()
    header = f"{value.dtype.str}{value.shape}".encode()
    return hashlib.sha256(header + content).hexdigest()
