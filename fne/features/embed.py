"""Making a store of embeddings from a store of activations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fne.features.embeddings import Embedding
from fne.features.shares import Shares
from fne.features.statistics import refuse_faults
from fne.store.lineage import Lineage
from fne.store.rows import Rows
from fne.store.writer import write_rows


def write_embeddings(
    path: Path, activations: Rows, embedding: Embedding, settings: dict[str, Any], lineage: Lineage
) -> dict[str, Any]:
    """Embed all rows of a store of activations.

    Args:
        path: the folder of the new store.
        activations: an open store.
        embedding: how its rows are embedded.
        settings: every setting that made the embedding.
        lineage: what it is made from.

    Returns:
        The settings as written: with the thresholds that were found and, for a ternary
        embedding, the shares of -1, 0 and +1 by layer.

    Raises:
        InputError: naming the first row and layer with a value that is not finite.
    """
    described = settings | embedding.found
    shards = _embed_shards(activations, embedding, described)
    write_rows(path, "embeddings", embedding.layers, embedding.dtype, shards, described, lineage)
    return described


def _embed_shards(
    activations: Rows, embedding: Embedding, described: dict[str, Any]
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and embeddings of each shard of the activations.

    The shares are known after the last shard and added to the settings then, in time for the
    manifest, which is written last.
    """
    shares = None if embedding.varies is None else Shares(embedding.layers, embedding.varies)
    for number, ids in activations.plan().items():
        parts = []
        for chosen, block in activations.blocks(ids):
            refuse_faults(activations, chosen, block)
            parts.append(embedding.transform(block))
        rows = np.concatenate(parts)
        if shares:
            shares.add(rows)
        yield number, ids, rows
    if shares:
        described["shares"] = shares.by_layer()
