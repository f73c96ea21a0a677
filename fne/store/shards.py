"""A shard of a row store: its digest, and its rows through a read-only memory map."""

from pathlib import Path

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.store.files import file_digest
from fne.store.formats import how_to_mend
from fne.store.hdf5 import own_datasets
from fne.store.layout import ROWS, TERNARY, Shard, width


def check_shard(folder: Path, shard: Shard) -> None:
    """Hash a shard of the store in `folder` and refuse it if it is not what the manifest says."""
    path = folder / shard.file
    found = file_digest(path)
    if found != shard.sha256:
        raise InputError(
            f"{path}: damaged: expected {shard.sha256[:12]}…, found {found[:12]}…; {how_to_mend(folder)}"
        )


def map_shard(folder: Path, shard: Shard, features: int, dtype: str) -> np.ndarray:
    """Return the rows of a shard as they are kept, mapped and not read yet.

    Raises:
        InputError: if they do not fit the manifest, or are kept outside the file.
    """
    path = folder / shard.file
    expected = (len(shard.ids), width(features, dtype))
    kept = "uint8" if dtype == TERNARY else dtype
    try:
        with h5py.File(path, "r") as file:
            rows = own_datasets(path, file)[ROWS]
            offset, shape, found = rows.id.get_offset(), rows.shape, rows.dtype
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: not a shard of ours ({error}); {how_to_mend(folder)}") from None
    if shape != expected or found != kept or offset is None:
        raise InputError(
            f"{path}: holds {shape} values of {found}, its manifest says {expected} of {kept}; "
            f"{how_to_mend(folder)}"
        )
    return np.memmap(path, dtype=kept, mode="r", offset=offset, shape=shape)
