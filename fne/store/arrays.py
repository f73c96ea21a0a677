"""Single-file artifacts: a few named arrays in one HDF5 file that describes itself.

Text is kept as UTF-8 strings. The file ends with a seal that reading checks first:
HDF5 itself does not notice a flipped bit in a value, and one in its own structures can
keep it busy for ever.
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
from fne.store.formats import Format, how_to_mend, read_bytes, seal_bytes, unseal_bytes
from fne.store.hdf5 import file_image, own_datasets
from fne.store.lineage import Artifact, Lineage, describe

FORMAT = Format("fne-arrays", 1)
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
    description = FORMAT.header() | describe(name, settings, lineage)
    # A dataset and not an attribute: attributes end at 64 kB.
    content: dict[str, np.ndarray | str] = {DESCRIPTION: json.dumps(description, ensure_ascii=False)}
    values = {key: _storable(value) for key, value in arrays.items()}
    with replacing(path) as temporary:
        temporary.write_bytes(seal_bytes(file_image(content | values)))


def read_arrays(path: Path, name: str | None = None) -> Arrays:
    """Read the artifact `name`, or any, from one HDF5 file, checking its seal.

    Raises:
        InputError: if the file is missing, damaged, of another kind or of a newer format.
    """
    content = read_bytes(path)
    inner = unseal_bytes(path, content, how_to_mend(path))
    try:
        with h5py.File(BytesIO(inner), "r") as file:
            datasets = own_datasets(path, file)
            description = json.loads(datasets.pop(DESCRIPTION)[()])
            FORMAT.check(path, description)
            values = {key: dataset[()] for key, dataset in datasets.items()}
        digest = hashlib.sha256(content).hexdigest()
        artifact = Artifact(
            path, description["name"], digest, description["settings"], description["lineage"]
        )
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not one of ours ({error}); {how_to_mend(path)}") from None
    if name is not None and artifact.name != name:
        raise InputError(f"{path}: expected {name}, found {artifact.name}")
    return Arrays(artifact, values)


def _storable(value: np.ndarray | Sequence[str]) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    return np.array([text.encode() for text in value], dtype=h5py.string_dtype())
