"""The search: images for a sentence, sentences for an image, and images that look similar.

`images_for_sentence`, `sentences_for_image` and `similar_images` rank what a `Snapshot` holds and return an
`Answer`. They and `describe_image` raise `AbsentError` if a model or embeddings are missing. A command and
the Python interface call `search`, which opens what a query needs; a server calls these functions with all of
it in memory. Ties keep the order of the ids.

With the default model nothing here imports torch, which takes longer than a whole search. Torch is imported
for a new image, and for any other text encoder or similarity.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.settings import not_one_of
from fne.features.embeddings import EMBEDDINGS
from fne.matching.model_file import require_same_model
from fne.matching.word_removal import Word
from fne.search.answer import Answer, Match
from fne.search.describe_photo import PARTS, Described, Wanted, describe_rows
from fne.search.explain import explain, explain_images, explain_sentences
from fne.search.open_project import (
    IMPORTED,
    CatalogContents,
    EmbeddedImage,
    ExternalImage,
    Project,
    QueryImage,
    Space,
    normalized,
    parse_query,
)
from fne.search.snapshot import (
    Snapshot,
    open_embeddings,
    open_for_image,
    open_for_sentence,
    open_imported,
)
from fne.store.artifact import Artifact, merge
from fne.store.catalog import SPLITS
from fne.store.layout import TERNARY, pack, unpack
from fne.store.rows import Rows
from fne.text.tokenizer import END, tokenize
from fne.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fne.search.embed_query import Network
    from fne.search.folder import Folder, IndexedFolder, RowSource

MODEL = "model"


class AbsentError(Exception):
    """A part of the project that is not there; the message says how to make it."""


@dataclass(frozen=True)
class Filters:
    """Which images of the catalog are searched: those of a split, those that have a tag; None for all."""

    split: str | None = None
    tag: str | None = None


EVERYTHING = Filters()


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
    explain: bool = False,
) -> Answer:
    """Find images for a sentence, sentences for an image, or images for an image.

    Args:
        argument: a sentence, the id of an image of the catalog, or an image file.
        by: the kind of embedding to compare images by, or None to use the trained model.
        folder: searched instead of the catalog.
        split: search only images of this split of the catalog, or their sentences.
        tag: search only images that have this tag, or their sentences.
        explain: give each match the words that matter.
    """
    if not argument.strip():
        raise InputError("the query is empty; describe what the image shows, or name an image")
    stat_cache.use(project.scratch)
    query = parse_query(argument, project.catalog, images_only=by is not None)
    if folder and (split or tag):
        raise InputError("photos of a folder have no splits and tags; remove --split and --tag")
    project.catalog.check_filters(split, tag)
    filters = Filters(split, tag)
    if explain and (by or project.chosen == IMPORTED):
        raise InputError(
            "words are left out of sentences, which a model reads; remove --explain, or --by and --model"
        )
    if project.chosen == IMPORTED:
        if by or folder:
            raise InputError("--model imported searches the catalog by its vectors; remove --by and --in")
        return _search_imported(project, query, filters, k)
    if isinstance(query, str):
        return _search_text(project, query, folder, filters, k, explain)
    if by is not None:
        return _search_similar(project, query, by, folder, filters, k)
    if folder:
        raise InputError(
            f"{folder}: a folder has no sentences; find similar images with --by fne, or remove --in to "
            "search the catalog"
        )
    snapshot = open_for_image(project, explain)
    assert snapshot.captions
    image = _with_vector(project, query, snapshot.captions.artifact)
    answer = sentences_for_image(snapshot, image, k, filters)
    if explain:
        assert image.vector is not None
        return explain_sentences(snapshot, answer, image.vector)
    return answer


def images_for_sentence(
    snapshot: Snapshot,
    text: str,
    k: int,
    filters: Filters = EVERYTHING,
    folder: "IndexedFolder | None" = None,
) -> Answer:
    """Rank images of the catalog, or those of a folder, for a sentence."""
    space = folder.vectors if folder else snapshot.images
    if space is None or (snapshot.model is None and snapshot.imported is None):
        raise AbsentError("sentences need a trained model; run `dvc repro encode`")
    caption, unknown = embed_sentence(snapshot, text, in_catalog=folder is None)
    pool = folder.folder if folder else snapshot.catalog
    places = _places(snapshot.catalog, space, filters)
    scores = space.score(places, lambda images: snapshot.compare(images, caption))
    true = None if folder else snapshot.by_caption.get(normalized(text))
    by = MODEL if snapshot.imported is None else IMPORTED
    return _answer(text, by, snapshot.similarity, space, places, scores, k, pool, filters, true, unknown)


def sentences_for_image(
    snapshot: Snapshot, image: EmbeddedImage, k: int, filters: Filters = EVERYTHING
) -> Answer:
    """Rank the sentences of images of the catalog for an image."""
    space, vector, catalog = snapshot.captions, image.vector, snapshot.catalog
    if space is None or vector is None:
        raise AbsentError("sentences need a trained model; run `dvc repro encode`")
    places = _places(catalog, space, filters)
    scores = space.score(places, lambda captions: snapshot.compare(vector[None], captions))
    # Only an image with captions can have true matches.
    true = {image.id} if image.id is not None and catalog.sentences(image.id) else None
    by = MODEL if snapshot.imported is None else IMPORTED
    return _answer(image, by, snapshot.similarity, space, places, scores, k, catalog, filters, true)


def explain_sentence(snapshot: Snapshot, text: str, vector: np.ndarray | None) -> list[Word]:
    """Return how much each word of a sentence matters for an image, given its vector."""
    if snapshot.vocabulary is None or vector is None:
        raise AbsentError("sentences need a trained model; run `dvc repro encode`")
    if snapshot.reader is None and snapshot.encoder:
        encode_sentence(text, snapshot.vocabulary)  # refuses one without a known word
    return explain(snapshot, [text], vector[None])[0]


def similar_images(
    snapshot: Snapshot,
    image: EmbeddedImage,
    k: int,
    filters: Filters = EVERYTHING,
    folder: "IndexedFolder | None" = None,
    layer: str | None = None,
) -> Answer:
    """Rank images of the catalog, or those of a folder, by how similar they look to an image.

    The image itself is excluded. With `layer`, only this layer of the embeddings is compared.
    """
    space = folder.embeddings if folder else snapshot.embeddings
    if snapshot.embeddings is None or space is None or image.embedding is None:
        raise AbsentError("look-alikes need embeddings; run `dvc repro embed`")
    pool = folder.folder if folder else snapshot.catalog
    places = _places(snapshot.catalog, space, filters)
    if folder:
        places = places[[space.keys[place] != image.sha256 for place in places.tolist()]]
    elif image.id is not None:
        places = places[places != space.places.get(image.id)]
    compare = embedding_similarity(space.store, image.embedding, layer, snapshot.count_bits)
    kind = str(snapshot.embeddings.artifact.settings["kind"])
    by = f"{kind}, layer {layer}" if layer else kind
    measure = "ternary dot product" if space.store.dtype == TERNARY else "cosine"
    return _answer(image, by, measure, space, places, space.score(places, compare), k, pool, filters)


def describe_image(
    snapshot: Snapshot, image: EmbeddedImage, wanted: Wanted, tuned_rows: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return what the tagger and the captioner say about an image, as far as there are such models.

    Those that were tuned with their networks read rows of their own (features), by their names in `PARTS`.
    """
    if not snapshot.describing or image.embedding is None or snapshot.embeddings is None:
        raise AbsentError("; ".join(snapshot.notes) or "no model describes images")
    record = snapshot.catalog.captioned.get(image.id) if image.id else None
    described = Described(image.id or "photo", None, record.user_tags if record else ())
    store, row = snapshot.embeddings.store, image.embedding[None]
    values = unpack(row, store.features) if store.dtype == TERNARY else row
    parts = [PARTS[name] for name in snapshot.describing]
    rows = [tuned_rows[name][None] if name in tuned_rows else values for name in snapshot.describing]
    files, rows = list(snapshot.describing.values()), [each.astype(np.float32) for each in rows]
    return describe_rows(parts, files, [described], rows, wanted)[0].values


def encode_sentence(text: str, vocabulary: Vocabulary) -> EncodedSentence:
    """Convert a sentence to word numbers, exactly as the captions were converted."""
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


def embed_sentence(snapshot: Snapshot, text: str, in_catalog: bool) -> tuple[np.ndarray, list[str]]:
    """Return the vector (1, dim) of a sentence, and its words that are not in the vocabulary.

    A model that cannot encode sentences has vectors only for the captions of the catalog, word for word. With
    these, only the catalog is searched (`in_catalog`).
    """
    if snapshot.reader:
        if not any(letter.isalnum() for letter in text):
            raise InputError(f"the query {text!r} has no words; describe what the image shows")
        return snapshot.reader([text]), []
    if snapshot.encoder is None:
        caption = _find_caption(snapshot, text) if in_catalog else None
        if caption is None:
            raise InputError(
                "the vectors of captions were imported, and the encoder that computed them is unknown; "
                "search the catalog with an image, or with one of its captions, word for word"
            )
        return caption[None], []
    assert snapshot.vocabulary
    sentence = encode_sentence(text, snapshot.vocabulary)
    return snapshot.encoder([sentence.numbers]), sentence.unknown


def embedding_similarity(
    store: Rows,
    query: np.ndarray,
    layer: str | None,
    count_bits: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Callable[[np.ndarray], np.ndarray]:
    """Return what compares the rows of a store with a query, all of them as stored.

    For ternary embeddings, these are exact dot products, counted in the bit planes. For others they are
    cosines, and 0 for a row of zeros.
    """
    columns = _columns(store, layer)
    if store.dtype != TERNARY:
        vector = query[columns].astype(np.float32)
        return lambda rows: _cosines(rows[:, columns].astype(np.float32, copy=False), vector)
    inside = np.zeros((1, store.features), dtype=np.int8)
    inside[:, columns] = 1
    mask = pack(inside)[0]  # the first plane; the second one of `inside` is empty
    half = len(mask) // 2
    planes = query & np.concatenate([mask[:half], mask[:half]])
    return lambda rows: count_bits(rows, planes)


def top_k(scores: np.ndarray, k: int) -> list[int]:
    """Return the positions of the `k` highest scores, best first; ties keep their order, NaN is refused.

    Example:
        >>> top_k(np.array([0.5, 0.9, 0.5, 0.1]), k=3)
        [1, 0, 2]
    """
    if np.isnan(scores).any():
        bad = int(np.isnan(scores).sum())
        raise InputError(f"{bad} of {len(scores)} scores are NaN; train the model again")
    if k >= len(scores):
        positions: list[int] = np.argsort(-scores, kind="stable").tolist()
        return positions
    # Only what is not below the k-th best is sorted: a large catalog takes longer to sort than to score.
    best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    chosen: list[int] = best[np.argsort(-scores[best], kind="stable")][:k].tolist()
    return chosen


def as_stored(embedded: np.ndarray, store: Rows) -> np.ndarray:
    """Return an embedding (features) as a store would have it."""
    stored: np.ndarray = pack(embedded[None])[0] if store.dtype == TERNARY else embedded.astype(store.dtype)
    return stored


def _search_imported(project: Project, query: QueryImage | str, filters: Filters, k: int) -> Answer:
    snapshot = open_imported(project)
    assert snapshot.images
    if isinstance(query, str):
        return images_for_sentence(snapshot, query, k, filters)
    vector = None if query.id is None else snapshot.images.row(query.id)
    if vector is None:
        raise InputError(
            f"{query.id or query.file}: has no imported vector, and the encoder that computed the others is "
            "unknown; search with an image of the catalog"
        )
    image = EmbeddedImage(query.id, query.sha256, query.file, vector=vector)
    return sentences_for_image(snapshot, image, k, filters)


def _search_text(
    project: Project, text: str, path: Path | None, filters: Filters, k: int, explain: bool
) -> Answer:
    snapshot = open_for_sentence(project, in_folder=path is not None)
    if path is None:
        answer = images_for_sentence(snapshot, text, k, filters)
        return explain_images(snapshot, answer, snapshot.images) if explain and snapshot.images else answer
    embed_sentence(snapshot, text, in_catalog=False)  # refuses it before the folder is indexed
    assert snapshot.model
    model = snapshot.model.artifact

    def open_source() -> "RowSource":
        from fne.search.embed_query import open_model_network  # torch: slow to import

        return open_model_network(project, model).vector_source()

    folder = _index(project, path, MODEL, model, open_source)
    answer = images_for_sentence(snapshot, text, k, filters, folder)
    return explain_images(snapshot, answer, folder.vectors) if explain and folder.vectors else answer


def _search_similar(
    project: Project, query: QueryImage, kind: str, path: Path | None, filters: Filters, k: int
) -> Answer:
    if kind not in EMBEDDINGS:
        raise InputError(f"--by: {not_one_of(kind, EMBEDDINGS)}")
    snapshot = open_embeddings(project)
    assert snapshot.embeddings
    store = snapshot.embeddings.store
    stored_kind = store.artifact.settings["kind"]
    if stored_kind != kind:
        raise InputError(
            f"{project.embeddings}: holds embeddings of kind '{stored_kind}', not '{kind}'; "
            f"search with --by {stored_kind}, or set embed.kind to {kind} and run `dvc repro embed`"
        )

    def open_network() -> "Network":
        from fne.search import embed_query  # torch: slow to import

        return embed_query.open_network(project, store.artifact, None)

    if isinstance(query, ExternalImage):
        row = as_stored(open_network().embedder.embed(query), store)
    else:
        row = store.read_stored([query.id])[0]
    image = EmbeddedImage(query.id, query.sha256, query.file, embedding=row)
    folder = None
    if path:
        source = lambda: open_network().embedding_source(store.dtype)  # noqa: E731
        folder = _index(project, path, kind, store.artifact, source)
    return similar_images(snapshot, image, k, filters, folder)


def _with_vector(project: Project, image: QueryImage, captions: Artifact) -> EmbeddedImage:
    """Read the stored vector of an image of the catalog, or compute that of a new file."""
    if isinstance(image, ExternalImage):
        from fne.search.embed_query import open_model_network  # torch: slow to import

        vector = open_model_network(project, captions).vectors([image])[0]
    else:
        rows = project.open_image_vectors()
        merge(rows.artifact, captions)
        require_same_model(rows.artifact, captions)
        vector = rows.read([image.id])[0]
    return EmbeddedImage(image.id, image.sha256, image.file, vector=vector)


def _index(
    project: Project, path: Path, kind: str, origin: Artifact, open_source: "Callable[[], RowSource]"
) -> "IndexedFolder":
    """Return the photos of a folder, with rows that are computed where the index does not have them."""
    from fne.search import folder  # Pillow: slow to import

    found = folder.list_folder(path, project.runtime.workers, project.scratch)
    space = folder.index_space(found, folder.Index(kind, origin, open_source), project.scratch)
    return folder.IndexedFolder(found, *((None, space) if kind == MODEL else (space, None)))


def _places(catalog: CatalogContents, space: Space, filters: Filters) -> np.ndarray:
    """Return the positions of the rows that pass the filters."""
    if filters == EVERYTHING:
        return np.arange(len(space.ids))
    passing = np.ones(len(space.ids), dtype=bool)
    if filters.split is not None and space.splits is not None:
        passing &= space.splits == (SPLITS.index(filters.split) if filters.split in SPLITS else -1)
    if filters.tag is not None:
        tagged = {record.id for record in catalog.captioned.values() if filters.tag in record.tags}
        passing &= np.array([image in tagged for image in space.images], dtype=bool)
    return np.flatnonzero(passing)


def _splits(space: Space, places: np.ndarray) -> dict[str, int]:
    """Return how many of the rows at some places are of each split of the catalog."""
    if space.splits is None:
        return {}
    counts = np.bincount(space.splits[places], minlength=len(SPLITS)).tolist()
    return {split: count for split, count in zip(SPLITS, counts, strict=True) if count}


def _answer(
    query: str | EmbeddedImage,
    by: str,
    measure: str,
    space: Space,
    places: np.ndarray,
    scores: np.ndarray,
    k: int,
    pool: "CatalogContents | Folder",
    filters: Filters,
    true: Collection[str] | None = None,
    unknown_words: Sequence[str] = (),
) -> Answer:
    """Return the `k` best of the rows at `places`, given their scores; `true` are paired with the query."""
    of_captions = space.ids is not space.images
    matches = []
    for rank, best in enumerate(top_k(scores, k), start=1):
        place = int(places[best])
        row_id, image = space.ids[place], space.images[place]
        file, sentences = pool.file(image), pool.sentences(image)
        if of_captions:
            sentences = [sentences[int(row_id.rsplit("#", 1)[1])]]
        paired = image in true if true else None
        path = str(file) if file else None
        matches.append(Match(rank, float(scores[best]), row_id, image, path, sentences, paired))
    text, shown = (query, None) if isinstance(query, str) else (None, query)
    return Answer(
        found="sentences" if of_captions else "images",
        text=text,
        image=shown.id if shown else None,
        file=str(shown.file) if shown and shown.file else None,
        by=by,
        measure=measure,
        pool=pool.name,
        candidates=len(places),
        matches=matches,
        unknown_words=list(unknown_words),
        unreadable=pool.unreadable,
        splits=_splits(space, places),
        tag=filters.tag,
    )


def _find_caption(snapshot: Snapshot, text: str) -> np.ndarray | None:
    """Return the vector of the first caption of the catalog that is this text."""
    assert snapshot.captions
    for record in snapshot.catalog.captioned.values():
        if text in record.captions:
            return snapshot.captions.row(record.caption_ids[record.captions.index(text)])
    return None


def _columns(store: Rows, layer: str | None) -> slice:
    if layer is None:
        return slice(0, store.features)
    names = [each.name for each in store.layers]
    if layer not in names:
        raise InputError(f"there is no layer {layer!r}; the layers are {', '.join(names)}")
    return store.columns(layer)


def _cosines(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    found: np.ndarray = rows @ vector / np.where(norms > 0, norms, 1.0)
    return found


def _examples(words: Sequence[str]) -> str:
    return ", ".join([word for word in words[1:] if len(word) > 2][:5])
