"""Controls of dimension: embeddings reduced by principal components or by a random projection.

Both are fitted on the training images of a fold: their mean, and the principal components about it. They
tell the dimension of an embedding apart from what it holds.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fne.core.errors import InputError
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from fne.text.bags import leading_eigenvectors


def reduce_rows(rows: Rows, training: Sequence[str], projection: str, seed: int, path: Path) -> int:
    """Write a store with rows of fewer values, in float16; return how many.

    Args:
        rows: the embeddings.
        training: the ids of the training images.
        projection: `pca:N` or `random:N`.
        seed: of the random projection.
        path: the folder of the new store.

    Raises:
        InputError: if there are fewer values or training images than N.
    """
    how, _, number = projection.partition(":")
    dim = int(number)
    if dim > min(rows.features, len(training)):
        raise InputError(
            f"study.project: {projection} of {rows.features} values and {len(training)} training images; "
            "choose a smaller number"
        )
    known = rows.read(training).astype(np.float32)
    mean = known.mean(axis=0, dtype=np.float64).astype(np.float32)
    if how == "pca":
        centered = torch.from_numpy(known - mean)
        axes = leading_eigenvectors((centered.T @ centered).double() / len(known), dim).numpy()
    else:
        generator = np.random.default_rng(seed)
        axes = generator.standard_normal((rows.features, dim)) / np.sqrt(dim)
    axes = axes.astype(np.float32)

    def project(values: np.ndarray) -> np.ndarray:
        # Not with NumPy: the threads of its BLAS are not those of the training.
        projected: np.ndarray = (torch.from_numpy(values - mean) @ torch.from_numpy(axes)).numpy()
        return projected

    # One scale for all values keeps them within float16, whatever the embedding.
    scale = np.float32(1 / (np.abs(project(known)).max() or 1.0))
    shards = (
        (number, ids, project(rows.read(ids).astype(np.float32)) * scale)
        for number, ids in rows.plan().items()
    )
    settings = rows.artifact.settings | {"project": projection, "seed": seed}
    lineage = rows.artifact.lineage | {"unprojected": {"digest": rows.artifact.digest, "settings": {}}}
    write_rows(path, "embeddings", [Layer("projected", dim)], "float16", shards, settings, lineage)
    return dim
