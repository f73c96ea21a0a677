"""The search: from an argument of `fne search` to an answer.

A search with the trained model finds images for a sentence, and sentences for an image. A
search with embeddings alone finds images that look similar to the network; it needs no
trained model.

Sentences are encoded and scores are computed in NumPy (`fne.search.numpy_model`), because
importing torch takes longer. Torch is imported only for a new image, or for a variant without
a NumPy implementation.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.params import not_one_of
from fne.features.embeddings import EMBEDDINGS
from fne.matching.model_file import ModelFile, is_imported, read_model_file, require_same_model
from fne.search.answer import Answer, Match, Pool, catalog_pool, folder_pool, top_k
from fne.search.numpy_model import PREFIX, SENTENCE_ENCODERS, SIMILARITIES, Similarity, embed_sentence
from fne.search.open_project import CatalogContents, ExternalImage, Project, QueryImage, parse_query
from fne.store.artifact import Artifact, merge
from fne.store.layout import TERNARY, pack
from fne.store.rows import Rows
from fne.text.caption_vectors import has_caption_vectors
from fne.text.tokenizer import END, tokenize
from fne.text.vocabulary import Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from fne.search.embed_query import Embedder
    from fne.search.folder import RowSource

BLOCK = 1024  # rows
MODEL = "model"


@dataclass(frozen=True)
class EncodedSentence:
    """The word numbers of a sentence, and its words that are not in the vocabulary."""

    numbers: list[int]
    unknown: list[str]


def search(
    project: Project,
    argument: str,
    by: str | None,
    folder: Path | None,
    k: int,
    split: str | None = None,
    tag: str | None = None,
) -> Answer:
    """Find images for a sentence, sentences for an image, or images for an image.

    Args:
        project: the project whose artifacts are used.
        argument: a sentence, the id of an image of the catalog, or an image file.
        by: the kind of embedding to compare images by, or None to use the trained model.
        folder: a folder to search instead of the catalog, or None.
        k: the number of matches to return.
        split: search only images of this split of the catalog, or their sentences; None for all.
        tag: search only images that have this tag, or their sentences; None for all.

    Raises:
        InputError: if the query is invalid, or if artifacts for it are missing.
    """
    if not argument.strip():
        raise InputError("the query is empty; describe what the image shows, or name an image")
    stat_cache.use(project.scratch)
    query = parse_query(argument, project.catalog, images_only=by is not None)
    if folder and (split or tag):
        raise InputError("photos of a folder have no splits and tags; remove --split and --tag")
    chosen = project.catalog.select(split, tag)
    if by is not None and not isinstance(query, str):
        return replace(similar_images(project, query, by, folder, k, chosen), tag=tag)
    if isinstance(query, str):
        return replace(images_for_sentence(project, query, folder, k, chosen), tag=tag)
    if folder:
        raise InputError(
            f"{folder}: a folder has no sentences; find similar images with --by fne, or remove --in to "
            "search the catalog"
        )
    return replace(sentences_for_image(project, query, k, chosen), tag=tag)


def images_for_sentence(
    project: Project, text: str, folder: Path | None, k: int, chosen: Collection[str]
) -> Answer:
    """Rank the chosen images of the catalog, or those of a folder, for a sentence."""
    vocabulary = read_vocabulary(project.vocabulary)
    model = read_model_file(project.current_model, PREFIX)
    merge(model.artifact, vocabulary.artifact)
    catalog = project.catalog
    if without_encoder(model.artifact):
        sentence = EncodedSentence([], [])
        caption_id = find_caption(catalog, text, folder is None)
        caption = Rows.open(project.caption_vectors, "caption_vectors").read([caption_id])
    else:
        sentence = encode_sentence(text, vocabulary)
        caption = embed_sentences(model, [sentence.numbers])
    if folder:

        def open_source() -> "RowSource":
            from fne.search.embed_query import open_row_source  # torch: slow to import

            return open_row_source(project, model.artifact)

        pool = _index(project, folder, MODEL, model.artifact, open_source)
    else:
        rows = Rows.open(project.image_vectors, "image_vectors")
        merge(model.artifact, vocabulary.artifact, rows.artifact, *catalog.artifacts)
        require_same_model(model.artifact, rows.artifact)
        pool = catalog_pool(catalog, rows, chosen=chosen)
    similarity = model.shape["similarity"]
    scores = score_blocks(similarity, ((images, caption) for _, images in pool.rows.blocks(pool.keys)))
    return Answer(
        found="images",
        text=text,
        image=None,
        file=None,
        by=MODEL,
        measure=similarity,
        pool=pool.name,
        candidates=len(pool.ids),
        matches=pool.matches(scores, k, None if folder else _images_with_caption(catalog, text)),
        unknown_words=sentence.unknown,
        unreadable=pool.unreadable,
        splits=pool.splits,
    )


def sentences_for_image(project: Project, image: QueryImage, k: int, chosen: Collection[str]) -> Answer:
    """Rank the sentences of the chosen images of the catalog for an image."""
    catalog = project.catalog
    rows = Rows.open(project.caption_vectors, "caption_vectors")
    lineage = merge(rows.artifact, *catalog.artifacts)
    similarity = lineage["model"]["settings"]["similarity"]
    ids = sorted(each for each in rows.ids if _image_of(each) in chosen)
    vector = _image_vector(project, image, rows.artifact)[None]
    scores = score_blocks(similarity, ((vector, captions) for _, captions in rows.blocks(ids)))
    return Answer(
        found="sentences",
        text=None,
        image=image.id,
        file=str(image.file) if image.file else None,
        by=MODEL,
        measure=similarity,
        pool="the catalog",
        candidates=len(ids),
        matches=_sentence_matches(ids, catalog, scores, image.id, k),
        splits=catalog.count_splits(map(_image_of, ids)),
    )


def similar_images(
    project: Project, image: QueryImage, kind: str, folder: Path | None, k: int, chosen: Collection[str]
) -> Answer:
    """Rank chosen images of the catalog, or those of a folder, by how similar they look to an image.

    The image itself is excluded.

    Raises:
        InputError: if `kind` is unknown, or if the project's embeddings are of another kind.
    """
    if kind not in EMBEDDINGS:
        raise InputError(f"--by: {not_one_of(kind, EMBEDDINGS)}")
    store = Rows.open(project.embeddings, "embeddings")
    merge(store.artifact, *project.catalog.artifacts)
    stored_kind = store.artifact.settings["kind"]
    if stored_kind != kind:
        raise InputError(
            f"{project.embeddings}: holds embeddings of kind '{stored_kind}', not '{kind}'; "
            f"search with --by {stored_kind}, or set embed.kind to {kind} and run `dvc repro embed`"
        )
    query = _image_embedding(project, image, store)
    if folder:

        def open_source() -> "RowSource":
            from fne.search.folder import RowSource  # Pillow: slow to import

            embedder = _open_embedder(project, store)
            return RowSource(store.layers, store.dtype, embedder.prepare, embedder.rows)

        pool = _index(project, folder, kind, store.artifact, open_source, exclude=image)
    else:
        pool = catalog_pool(project.catalog, store, image, chosen)
    ternary = store.dtype == TERNARY
    scores = (ternary_products if ternary else cosines)(query, pool)
    return Answer(
        found="images",
        text=None,
        image=image.id,
        file=str(image.file) if image.file else None,
        by=kind,
        measure="ternary dot product" if ternary else "cosine",
        pool=pool.name,
        candidates=len(pool.ids),
        matches=pool.matches(scores, k),
        unreadable=pool.unreadable,
        splits=pool.splits,
    )


def encode_sentence(text: str, vocabulary: Vocabulary) -> EncodedSentence:
    """Convert a sentence to word numbers, exactly as the captions were converted.

    Raises:
        InputError: if the sentence has no words, or none that are in the vocabulary.
    """
    settings = vocabulary.artifact.settings
    tokens = tokenize(text, settings["lowercase"], cut=settings["cut"])
    words = [token for token in tokens if any(letter.isalnum() for letter in token)]
    if not words:
        raise InputError(f"the query {text!r} has no words; describe what the image shows")
    unknown = list(dict.fromkeys(word for word in words if word not in vocabulary.numbers))
    if all(word in unknown for word in words):
        raise InputError(
            f"no word of {text!r} is in the vocabulary; use some of the {len(vocabulary.words) - 1} words of "
            f"{vocabulary.artifact.path}, for example {_examples(vocabulary.words)}"
        )
    if settings.get("end_of_sentence"):
        tokens = [*tokens, END]
    return EncodedSentence(vocabulary.encode(tokens), unknown)


def without_encoder(model: Artifact) -> bool:
    """Return whether the vectors of captions were imported, so that none can be computed for a sentence."""
    return is_imported(model) or has_caption_vectors(model.lineage)


def find_caption(catalog: CatalogContents, text: str, in_catalog: bool) -> str:
    """Return the id of a caption of the catalog, for models that cannot encode other sentences.

    Args:
        catalog: the catalog.
        text: the caption, word for word.
        in_catalog: whether the catalog is searched, and not a folder.

    Raises:
        InputError: if there is no such caption, or if a folder is searched.
    """
    ids = (
        caption_id
        for record in catalog.captioned.values()
        for caption_id, caption in zip(record.caption_ids, record.captions, strict=True)
        if caption == text
    )
    found = next(ids, None) if in_catalog else None
    if found is None:
        raise InputError(
            "the vectors of captions were imported, and the encoder that computed them is unknown; search "
            "the catalog with an image, or with one of its captions, word for word"
        )
    return found


def embed_sentences(model: ModelFile, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the vectors (sentences, embed_dim) of sentences in the joint space, given their word numbers."""
    if model.shape["text_encoder"] in SENTENCE_ENCODERS:
        return np.stack([embed_sentence(model, numbers) for numbers in sentences])
    from fne.search import embed_query  # torch: slow to import

    return embed_query.embed_sentences(model.artifact.path, sentences)


def score_blocks(name: str, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the concatenated scores of blocks of images and captions, by the named similarity."""
    similarity = SIMILARITIES.get(name) or _torch_similarity(name)
    return np.concatenate([np.zeros(0), *(similarity(images, captions) for images, captions in pairs)])


def ternary_products(query: np.ndarray, pool: Pool) -> np.ndarray:
    """Return the exact dot products of a ternary embedding with all embeddings of a pool.

    They are computed by counting common bits in the bit planes, as these are stored.
    """
    planes = pack(query[None])
    swapped = np.roll(planes, planes.shape[1] // 2, axis=1)  # +1 where the query is -1, and the reverse
    scores = [np.zeros(0, dtype=np.int32)]
    for start in range(0, len(pool.keys), BLOCK):
        rows = pool.rows.read_stored(pool.keys[start : start + BLOCK])
        scores.append(_common_bits(rows, planes) - _common_bits(rows, swapped))
    return np.concatenate(scores)


def cosines(query: np.ndarray, pool: Pool) -> np.ndarray:
    """Return the cosines of an embedding with all embeddings of a pool; 0 for a row of zeros."""
    vector = query.astype(np.float32)
    scores = [np.zeros(0)]
    for _, block in pool.rows.blocks(pool.keys, dtype=np.float32):
        norms = np.linalg.norm(block, axis=1) * np.linalg.norm(vector)
        scores.append(block @ vector / np.where(norms > 0, norms, 1.0))
    return np.concatenate(scores)


def _index(
    project: Project,
    path: Path,
    space: str,
    origin: Artifact,
    open_source: "Callable[[], RowSource]",
    exclude: QueryImage | None = None,
) -> Pool:
    """Return the images of a folder, with rows that are computed where the index does not have them."""
    from fne.search.folder import index_folder, list_folder  # Pillow: slow to import

    folder = list_folder(path, project.runtime.workers, project.scratch)
    return folder_pool(folder, index_folder(folder, space, origin, project.scratch, open_source), exclude)


def _torch_similarity(name: str) -> Similarity:
    from fne.search.embed_query import torch_similarity  # torch: slow to import

    return torch_similarity(name)


def _image_vector(project: Project, image: QueryImage, captions: Artifact) -> np.ndarray:
    """Return the stored vector of an image of the catalog, or compute that of a new file."""
    if isinstance(image, ExternalImage):
        from fne.search.embed_query import embed_image  # torch: slow to import

        return embed_image(project, image, captions)
    rows = Rows.open(project.image_vectors, "image_vectors")
    merge(rows.artifact, captions)
    require_same_model(rows.artifact, captions)
    stored: np.ndarray = rows.read([image.id])[0]
    return stored


def _image_embedding(project: Project, image: QueryImage, store: Rows) -> np.ndarray:
    """Return the stored embedding of an image of the catalog, or compute that of a new file."""
    if isinstance(image, ExternalImage):
        return _open_embedder(project, store).embed(image)
    stored: np.ndarray = store.read([image.id])[0]
    return stored


def _open_embedder(project: Project, store: Rows) -> "Embedder":
    """Open what computes embeddings like those of the store."""
    from fne.search.embed_query import open_embedder  # torch: slow to import

    return open_embedder(
        store.artifact, project.weights, project.statistics, project.runtime, project.scratch
    )


def _common_bits(rows: np.ndarray, planes: np.ndarray) -> np.ndarray:
    counts: np.ndarray = np.bitwise_count(rows & planes).sum(axis=1, dtype=np.int32)
    return counts


def _sentence_matches(
    ids: Sequence[str], catalog: CatalogContents, scores: np.ndarray, image_id: str | None, k: int
) -> list[Match]:
    # Only an image with captions can have true matches.
    captioned = image_id is not None and bool(catalog.sentences(image_id))
    found = []
    for rank, position in enumerate(top_k(scores, k), start=1):
        image, number = ids[position].rsplit("#", 1)
        file = catalog.file(image)
        found.append(
            Match(
                rank,
                float(scores[position]),
                ids[position],
                image,
                str(file) if file else None,
                [catalog.sentences(image)[int(number)]],
                image == image_id if captioned else None,
            )
        )
    return found


def _image_of(caption_id: str) -> str:
    return caption_id.rsplit("#", 1)[0]


def _images_with_caption(catalog: CatalogContents, text: str) -> set[str]:
    """Return the images that have this sentence as a caption, ignoring case and spaces."""
    wanted = _normalize(text)
    return {
        record.id
        for record in catalog.captioned.values()
        if any(_normalize(caption) == wanted for caption in record.captions)
    }


def _normalize(text: str) -> str:
    return " ".join(text.casefold().split())


def _examples(words: Sequence[str]) -> str:
    return ", ".join([word for word in words[1:] if len(word) > 2][:5])
