"""Search with the embedding alone: images that look alike to the network; no trained model is needed."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fne.core.errors import InputError
from fne.core.params import not_one_of
from fne.features.embeddings import EMBEDDINGS
from fne.retrieval.answer import Answer
from fne.retrieval.pools import Pool, catalog_pool, folder_pool
from fne.retrieval.project import Project
from fne.retrieval.query import New, Picture
from fne.store.layout import TERNARY
from fne.store.lineage import merge
from fne.store.rows import Rows
from fne.store.ternary import pack

if TYPE_CHECKING:
    from fne.retrieval.unseen import Embedder

BLOCK = 1024  # rows


def images_like(project: Project, picture: Picture, kind: str, folder: Path | None, k: int) -> Answer:
    """Rank the images of the catalog, or of a folder, by their likeness to an image, itself left out.

    Raises:
        InputError: if there is no such kind, or if the project's embeddings are of another.
    """
    if kind not in EMBEDDINGS:
        raise InputError(f"--by: {not_one_of(kind, EMBEDDINGS)}")
    store = Rows.open(project.embeddings, "embeddings")
    merge(store.artifact, *project.catalog.artifacts)
    made = store.artifact.settings["kind"]
    if made != kind:
        raise InputError(
            f"{project.embeddings}: holds embeddings of kind '{made}', not '{kind}'; "
            f"search with --by {made}, or set embed.kind to {kind} and run `dvc repro embed`"
        )
    query = _embed(project, picture, store)
    pool = (
        _folder_pool(project, folder, store, picture)
        if folder
        else catalog_pool(project.catalog, store, picture)
    )
    ternary = store.dtype == TERNARY
    scores = (ternary_products if ternary else cosines)(query, pool)
    return Answer(
        found="images",
        text=None,
        image=picture.id,
        file=str(picture.file) if picture.file else None,
        by=kind,
        measure="ternary dot product" if ternary else "cosine",
        pool=pool.name,
        candidates=len(pool.ids),
        matches=pool.matches(scores, k),
        unreadable=pool.unreadable,
    )


def ternary_products(query: np.ndarray, pool: Pool) -> np.ndarray:
    """Return the exact dot products of a ternary embedding with all of a pool.

    They are counted in the bit planes as these are stored. For a single query NumPy is soon
    enough, and importing the compiled loops of `fne.features.neighbors` would take longer.
    """
    planes = pack(query[None])
    crossed = np.roll(planes, planes.shape[1] // 2, axis=1)  # +1 where the query is -1, and the reverse
    scores = [np.zeros(0, dtype=np.int32)]
    for start in range(0, len(pool.keys), BLOCK):
        rows = pool.rows.read_kept(pool.keys[start : start + BLOCK])
        scores.append(_common_bits(rows, planes) - _common_bits(rows, crossed))
    return np.concatenate(scores)


def cosines(query: np.ndarray, pool: Pool) -> np.ndarray:
    """Return the cosines of an embedding with all of a pool; 0 for a row of zeros."""
    wanted = query.astype(np.float32)
    scores = [np.zeros(0)]
    for _, block in pool.rows.blocks(pool.keys, dtype=np.float32):
        lengths = np.linalg.norm(block, axis=1) * np.linalg.norm(wanted)
        scores.append(block @ wanted / np.where(lengths > 0, lengths, 1.0))
    return np.concatenate(scores)


def _common_bits(rows: np.ndarray, planes: np.ndarray) -> np.ndarray:
    counts: np.ndarray = np.bitwise_count(rows & planes).sum(axis=1, dtype=np.int32)
    return counts


def _embed(project: Project, picture: Picture, store: Rows) -> np.ndarray:
    """Return the embedding of an image of the catalog as it is kept, or make one for a new file."""
    if not isinstance(picture, New):
        kept: np.ndarray = store.read([picture.id])[0]
        return kept
    return _embedder(project, store).embed(picture)


def _embedder(project: Project, store: Rows) -> "Embedder":
    """Put together what makes embeddings like those of the store."""
    from fne.retrieval.unseen import open_embedder  # slow to import, and not always needed

    return open_embedder(
        store.artifact, project.weights, project.statistics, project.runtime, project.scratch
    )


def _folder_pool(project: Project, path: Path, store: Rows, picture: Picture) -> Pool:
    from fne.retrieval.index import Maker, index_folder, list_folder  # imports what decodes images

    def open_maker() -> Maker:
        embedder = _embedder(project, store)
        return Maker(store.layers, store.dtype, embedder.prepare, embedder.rows)

    folder = list_folder(path, project.runtime.workers, project.scratch)
    kind = str(store.artifact.settings["kind"])
    rows = index_folder(folder, kind, store.artifact, project.scratch, open_maker)
    return folder_pool(folder, rows, picture)
