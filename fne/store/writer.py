"""Writing a row store; see `fne.store.layout` for what it is."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fne.store.files import replacing_folder, sync, write_text
from fne.store.formats import seal_text
from fne.store.hdf5 import file_image
from fne.store.layout import FORMAT, MANIFEST, ROWS, TERNARY, Layer, Processors, shard_name
from fne.store.lineage import Lineage, describe
from fne.store.ternary import pack


def write_rows(
    path: Path,
    name: str,
    layers: Sequence[Layer],
    dtype: str,
    shards: Iterable[tuple[int, Sequence[str], np.ndarray]],
    settings: dict[str, Any],
    lineage: Lineage,
    processors: Processors | None = None,
) -> None:
    """Write the artifact `name` as a row store, one shard in memory at a time.

    Args:
        path: the store's folder.
        name: the artifact's name in lineages, such as `activations`.
        layers: the named runs of columns.
        dtype: a NumPy type, or `ternary` for two bit planes.
        shards: the number, ids and rows of each shard, ids as in `plan_shards`.
        settings: every setting that made the rows.
        lineage: what they were made from.
        processors: which processors computed which rows, if that is known.
    """
    width = sum(layer.features for layer in layers)
    with replacing_folder(path) as folder:
        index = [
            _write_shard(folder / shard_name(number), ids, rows, width, dtype) for number, ids, rows in shards
        ]
        manifest = {
            **FORMAT.header(),
            **describe(name, settings, lineage),
            "dtype": dtype,
            "layers": [[layer.name, layer.features] for layer in layers],
            **({"processors": processors} if processors else {}),
            "shards": index,
        }
        write_text(folder / MANIFEST, seal_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"))


def _write_shard(path: Path, ids: Sequence[str], rows: np.ndarray, width: int, dtype: str) -> dict[str, Any]:
    if rows.shape != (len(ids), width):
        raise ValueError(f"expected {len(ids)} rows of {width} values, got an array of {rows.shape}")
    block = pack(rows) if dtype == TERNARY else rows.astype(dtype, copy=False)
    # Alignment puts the block where a memory map can read it directly.
    image = file_image({ROWS: block}, alignment_threshold=1, alignment_interval=64)
    path.write_bytes(image)
    sync(path)
    return {"file": path.name, "sha256": hashlib.sha256(image).hexdigest(), "ids": list(ids)}
