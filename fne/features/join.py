"""Joining stores of activations: side by side, the layers of several networks, or below each other, the rows.

Side by side, the new store has the columns of all sources and the rows of the ids that all of them have.
Below each other, it has the rows of all sources, which must have the same columns. Its settings record every
source with its digest, settings and lineage.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.core.progress import tracked
from fne.features.standardize import check_finite
from fne.features.write_embeddings import refuse_without_rows
from fne.store.artifact import Lineage
from fne.store.checksums import is_sealed
from fne.store.layout import MANIFEST, Layer, plan_shards
from fne.store.rows import Rows, write_rows

SHARD = 1 << 26  # bytes: several times this is in memory while a shard is written
# The settings of a store that name its sources: the layers are side by side, or the rows below each other.
JOINED, APPENDED = "joined", "appended"
# What settings say of the origin of rows and not of the network.
ORIGIN = {"imported", "checked", APPENDED}


def join_stores(sources: Sequence[Path], store: Path, common: bool = False) -> Rows:
    """Write the layers of several stores of activations side by side, one shard in memory at a time.

    Args:
        common: keep the ids that all sources have, where otherwise a missing id is an error.
    """
    opened = _open(sources, store)
    ids = common_ids(opened, common)
    layers = joined_layers(opened)
    dtype = np.result_type(*(np.dtype(rows.dtype) for rows in opened)).name
    columns = [[layer.name for layer in each] for each in layers]
    settings = {
        JOINED: [_described(rows) | {"layers": names} for rows, names in zip(opened, columns, strict=True)]
    }
    shards = _joined_shards(opened, ids, dtype, store)
    flat = [layer for each in layers for layer in each]
    write_rows(store, "activations", flat, dtype, shards, settings, common_lineage(opened))
    return Rows.open(store, "activations")


def append_stores(sources: Sequence[Path], store: Path) -> Rows:
    """Write the rows of several stores of activations below each other, one shard in memory at a time.

    The shards of the first store stay as they are. So DVC keeps them once, and a training run that reads only
    rows of the first store is known to be finished.
    """
    opened = _open(sources, store)
    first = opened[0]
    for rows in opened:
        if JOINED in rows.artifact.settings:
            raise InputError(
                f"{rows.artifact.path}: has the layers of several stores; join the rows of each of them "
                "first, and then the layers"
            )
        _require_same_columns(first, rows)
    settings = _network(first) | {APPENDED: [_described(rows) | {"rows": len(rows.ids)} for rows in opened]}
    # What only some of the rows were made from is in the settings alone.
    shared = set.intersection(*(set(rows.artifact.lineage) for rows in opened))
    lineage = {name: entry for name, entry in _agreed(opened).items() if name in shared}
    shards = _appended_shards(opened, store)
    write_rows(store, "activations", first.layers, first.dtype, shards, settings, lineage)
    return Rows.open(store, "activations")


def common_ids(stores: Sequence[Rows], common: bool) -> list[str]:
    """Return the ids that all stores have, sorted."""
    sets = [set(rows.ids) for rows in stores]
    everything, shared = set.union(*sets), set.intersection(*sets)
    if not shared:
        listed = ", ".join(str(rows.artifact.path) for rows in stores)
        raise InputError(f"{listed}: have no id in common; join their rows with --rows")
    for rows, own in zip(stores, sets, strict=True):
        missing = sorted(everything - own)
        if missing and not common:
            raise InputError(
                f"{rows.artifact.path}: lacks {len(missing)} of the {len(everything)} ids of all stores, the "
                f"first is {missing[0]!r}; join the {len(shared)} ids that all have with --common"
            )
    return sorted(shared)


def joined_layers(stores: Sequence[Rows]) -> list[list[Layer]]:
    """Return the layers of each store; a name that several stores have gets the prefix `FOLDER.`.

    Folders of the same name get their number among the stores.
    """
    counts = Counter(layer.name for rows in stores for layer in rows.layers)
    folders = [rows.artifact.path.name for rows in stores]
    prefixes = [
        f"{folder}{number}" if folders.count(folder) > 1 else folder
        for number, folder in enumerate(folders, start=1)
    ]
    return [
        [
            Layer(f"{prefix}.{layer.name}" if counts[layer.name] > 1 else layer.name, layer.features)
            for layer in rows.layers
        ]
        for prefix, rows in zip(prefixes, stores, strict=True)
    ]


def common_lineage(stores: Sequence[Rows]) -> Lineage:
    """Return the ancestors on which all stores agree that have them, such as the image files.

    The settings of the joined store have the others, such as the weights of different networks.
    """
    made_from = [
        (rows.artifact.path, rows.artifact.lineage["images"]["digest"])
        for rows in stores
        if "images" in rows.artifact.lineage
    ]
    for path, digest in made_from[1:]:
        first, expected = made_from[0]
        if digest != expected:
            raise InputError(
                f"{first} was made from images {expected[:12]}…, but {path} was made from images "
                f"{digest[:12]}…; join stores of the same images, or their rows with --rows"
            )
    return _agreed(stores)


def _agreed(stores: Sequence[Rows]) -> Lineage:
    lineages = [rows.artifact.lineage for rows in stores]
    agreed: Lineage = {}
    for name in sorted(set().union(*lineages)):
        entries = [lineage[name] for lineage in lineages if name in lineage]
        if len({entry["digest"] for entry in entries}) == 1:
            agreed[name] = entries[0]
    return agreed


def check_destination(store: Path, name: str = "activations") -> None:
    """Refuse a folder that is not a store of this project, since writing a store replaces the folder."""
    if not store.exists() and not store.is_symlink():
        return
    hint = "choose another folder with --to, or remove it"
    try:
        expected = {MANIFEST, *(shard.file for shard in Rows.open(store, name).shards)}
        sealed = is_sealed(read_bytes(store / MANIFEST))
    except InputError:
        sealed = False
    if not sealed:
        raise InputError(
            f"{store}: exists and is not an intact row store of {name.replace('_', ' ')}; {hint}"
        )
    others = sorted(file.name for file in store.iterdir() if file.name not in expected or not file.is_file())
    if others:
        raise InputError(f"{store}: holds other files beside the store, the first is {others[0]!r}; {hint}")


def _open(sources: Sequence[Path], store: Path) -> list[Rows]:
    if len(sources) < 2:
        raise InputError(f"expected at least two stores to join, got {len(sources)}")
    for source in sources:
        if source.resolve() == store.resolve():
            raise InputError(f"{store}: is one of the stores to join; choose another folder with --to")
    opened = [Rows.open(source, "activations") for source in sources]
    for rows in opened:
        refuse_without_rows(rows)
    return opened


def _described(rows: Rows) -> dict[str, Any]:
    artifact = rows.artifact
    return {
        "store": artifact.path.name,
        "digest": artifact.digest,
        "settings": artifact.settings,
        "lineage": artifact.lineage,
    }


def _network(rows: Rows) -> dict[str, Any]:
    """Return what a store records of the network that computed its rows, and of its input; {} if unknown."""
    settings = rows.artifact.settings
    return {key: settings[key] for key in settings if key not in ORIGIN} if "backbone" in settings else {}


def _require_same_columns(first: Rows, rows: Rows) -> None:
    """Refuse a store whose rows cannot be compared with those of the first."""
    ours, theirs = (
        {f"layer {number}": f"{layer.name} {layer.features}" for number, layer in enumerate(each.layers, 1)}
        | {"type of values": each.dtype}
        | {f"network ({key})": value for key, value in _network(each).items()}
        for each in (first, rows)
    )
    for key in ours | theirs:
        a, b = (own.get(key, "none recorded") for own in (ours, theirs))
        if a != b:
            raise InputError(
                f"{_named(first)} and {_named(rows)} differ in {key}: {a} and {b}; join rows of the same "
                "network, which `fne import --photos` records for imported ones"
            )


def _named(rows: Rows) -> str:
    return f"{rows.artifact.path} ({rows.artifact.digest[:12]}…)"


def _appended_shards(stores: Sequence[Rows], store: Path) -> Iterator[tuple[int, list[str], np.ndarray]]:
    owners: dict[str, Rows] = {}
    number = -1
    for rows in stores:
        start = number + 1
        for shard in tracked(rows.shards, f"join {rows.artifact.path.name}", len(rows.shards), "shard"):
            block = rows.read(shard.ids)
            check_finite(rows, shard.ids, block)
            new = []
            for place, row_id in enumerate(shard.ids):
                owner = owners.setdefault(row_id, rows)
                if owner is rows:
                    new.append(place)
                elif not np.array_equal(owner.read([row_id])[0], block[place]):
                    raise InputError(
                        f"{_named(owner)} and {_named(rows)} have different rows for {row_id!r}; import "
                        "the second without it"
                    )
            if new:
                number = start + shard.number
                yield number, [shard.ids[place] for place in new], block[new]
    check_destination(store)  # again: reading may have taken long


def _joined_shards(
    stores: Sequence[Rows], ids: Sequence[str], dtype: str, store: Path
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    size = len(ids) * sum(rows.features for rows in stores) * np.dtype(dtype).itemsize
    plan = plan_shards(ids, -(-size // SHARD))
    for number, chosen in tracked(plan.items(), "join", len(plan), "shard"):
        parts = []
        for rows in stores:
            block = rows.read(chosen)
            check_finite(rows, chosen, block)
            parts.append(block.astype(dtype, copy=False))
        yield number, chosen, np.concatenate(parts, axis=1)
    check_destination(store)  # again: reading may have taken long
