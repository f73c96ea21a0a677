"""Answers of the server, as values for JSON.

Scores are those of `fne search`: the same functions compute them, from rows that are in memory. Ties keep
the order of the ids. Filters choose among the images after all have been scored.

Every answer names the version of the artifacts that it was made with. No answer has a path of a file:
images are named by their ids, and their pictures by the digests of the files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.report.facts import ancestors, feature_source
from fne.search.answer import top_k
from fne.search.bit_kernels import ternary_products
from fne.search.describe_photo import PARTS, Described, Wanted, describe_rows, read_writing
from fne.search.engine import (
    MODEL,
    EncodedSentence,
    embed_sentences,
    encode_sentence,
    find_caption,
    score_blocks,
    without_encoder,
)
from fne.search.folder_index import IndexedFolder
from fne.search.open_project import selected
from fne.search.snapshot import Space, normalized
from fne.serve.session import Session
from fne.store.artifact import merge
from fne.store.layout import TERNARY, pack, unpack

BLOCK = 4096  # rows
CATALOG, FOLDER = "catalog", "folder"
CONCEPTS = 8

Values = dict[str, Any]


class MissingError(Exception):
    """An image or a photo that the server does not have."""


class AbsentError(Exception):
    """A part of the project that is not there; the message says how to make it."""


@dataclass(frozen=True)
class QueryImage:
    """The image of a query: its rows as stores have them, and what the catalog knows about it."""

    id: str | None
    sha256: str | None
    embedding: np.ndarray | None
    vector: np.ndarray | None


@dataclass(frozen=True)
class Filters:
    """What is searched: the catalog or the folder, images of a split, images with a tag."""

    where: str = CATALOG
    split: str | None = None
    tag: str | None = None


def find_image(session: Session, image: str | None, photo: str | None) -> QueryImage:
    """Return the image that a request names: an image of the catalog, or a photo by its digest.

    Raises:
        InputError: if it names none, or both.
        MissingError: if there is no such image.
    """
    if (image is None) == (photo is None):
        raise InputError("name an image of the catalog (image) or a photo (photo)")
    snapshot = session.snapshot
    known = snapshot.by_digest.get(photo) if photo else None
    identity = known.id if known else image
    if identity is None:
        found = session.photo(str(photo))
        if found is None:
            raise MissingError("this photo is not here any more; send it again")
        return QueryImage(None, found.sha256, found.embedding, found.vector)
    if identity not in snapshot.catalog.captioned:
        raise MissingError(f"the catalog has no image {identity!r}")
    file = snapshot.catalog.images.get(identity)
    return QueryImage(
        identity,
        file.sha256 if file else None,
        _row(snapshot.embeddings, identity),
        _row(snapshot.joint.images if snapshot.joint else None, identity),
    )


def images_for_sentence(session: Session, text: str, filters: Filters, k: int) -> Values:
    """Rank images for a sentence.

    Raises:
        InputError: if no word of the sentence is known.
        AbsentError: if there is no model, or no index of the folder yet.
    """
    joint = session.snapshot.joint
    if joint is None:
        raise AbsentError("sentences need a trained model; run `dvc repro encode`")
    if without_encoder(joint.model.artifact):
        sentence = EncodedSentence([], [])
        caption_id = find_caption(session.snapshot.catalog, text, filters.where == CATALOG)
        caption = joint.captions.rows[joint.captions.places[caption_id]][None]
    else:
        sentence = encode_sentence(text, joint.vocabulary)
        caption = embed_sentences(joint.model, [sentence.numbers])
    space = _space(session, filters.where, MODEL)
    scores = score_blocks(joint.similarity, ((images, caption) for images in _blocks(space.rows)))
    true = session.snapshot.by_caption.get(normalized(text)) if filters.where == CATALOG else None
    found = _image_matches(session, space, scores, filters, k, None, true)
    return _answer(session, MODEL, joint.similarity, filters.where, found) | {
        "found": "images",
        "text": text,
        "unknown_words": sentence.unknown,
    }


def sentences_for_image(session: Session, query: QueryImage, k: int) -> Values:
    """Rank the sentences of the catalog for an image.

    Raises:
        AbsentError: if there is no model.
    """
    joint, catalog = session.snapshot.joint, session.snapshot.catalog
    if joint is None or query.vector is None:
        raise AbsentError("sentences need a trained model; run `dvc repro encode`")
    vector = query.vector[None]
    space = joint.captions
    scores = score_blocks(joint.similarity, ((vector, captions) for captions in _blocks(space.rows)))
    captioned = query.id is not None and bool(catalog.sentences(query.id))
    matches = []
    for rank, place in enumerate(top_k(scores, k), start=1):
        image, number = space.ids[place].rsplit("#", 1)
        shown = _shown(session, CATALOG, image)
        matches.append(
            {"rank": rank, "score": float(scores[place]), "id": space.ids[place]}
            | shown
            | {"sentences": [catalog.sentences(image)[int(number)]]}
            | {"true": image == query.id if captioned else None}
        )
    found = {"candidates": len(space.ids), "matches": matches}
    return _answer(session, MODEL, joint.similarity, CATALOG, found) | {"found": "sentences", **_named(query)}


def similar_images(
    session: Session, query: QueryImage, layer: str | None, filters: Filters, k: int
) -> Values:
    """Rank images by the similarity of their embeddings to an image's, which is excluded.

    Args:
        session: the session.
        query: the image.
        layer: compare only this layer of the embeddings, or None for all.
        filters: what is searched.
        k: the number of matches.

    Raises:
        InputError: if there is no such layer.
        AbsentError: if there are no embeddings, or no index of the folder yet.
    """
    stored = session.snapshot.embeddings
    if stored is None or query.embedding is None:
        raise AbsentError("look-alikes need embeddings; run `dvc repro embed`")
    space = _space(session, filters.where, str(stored.artifact.settings["kind"]))
    columns = _columns(space, layer)
    scores = embedding_scores(space, query.embedding, columns)
    found = _image_matches(session, space, scores, filters, k, query, None)
    measure = "ternary dot product" if space.dtype == TERNARY else "cosine"
    kind = str(stored.artifact.settings["kind"])
    by = f"{kind}, layer {layer}" if layer else kind
    return _answer(session, by, measure, filters.where, found) | {"found": "images", **_named(query)}


def image_details(session: Session, query: QueryImage) -> Values:
    """Return what is known about an image: sentences, tags, sizes, and what its rows were made from."""
    snapshot = session.snapshot
    record = snapshot.catalog.captioned.get(query.id) if query.id else None
    file = snapshot.catalog.images.get(query.id) if query.id else None
    photo = session.photo(query.sha256) if query.sha256 and not file else None
    index = session.folder.index if session.folder else None
    in_folder = index.by_digest.get(query.sha256) if index and query.sha256 else None
    sized = file or photo
    return {
        "version": snapshot.version,
        **_named(query),
        "name": query.id or (in_folder.id if in_folder else None),
        "picture": query.sha256 if file or in_folder else None,
        "split": record.split if record else None,
        "sentences": list(record.captions) if record else [],
        "tags": list(record.tags) if record else [],
        "width": sized.width if sized else None,
        "height": sized.height if sized else None,
        "features": feature_source(snapshot.lineage),
        "made": [
            {"name": each.name, "digest": each.digest, "settings": each.settings}
            for each in ancestors(snapshot.lineage)
        ],
    }


def description(session: Session, query: QueryImage) -> Values:
    """Return what the tagger and the captioner say about an image, as far as there are such models.

    Raises:
        AbsentError: if there are none.
    """
    snapshot = session.snapshot
    if not snapshot.describers or query.embedding is None or snapshot.embeddings is None:
        raise AbsentError("; ".join(snapshot.notes) or "no model describes images")
    record = snapshot.catalog.captioned.get(query.id) if query.id else None
    hints = record.hints if record else ()
    image = Described(query.id or "photo", None, hints, ())
    row = _unpacked(snapshot.embeddings, query.embedding)
    parts = [PARTS[name] for name in snapshot.describers]
    writing = read_writing(session.project.params, None)
    files = list(snapshot.describers.values())
    found = describe_rows(parts, files, [image], row, Wanted(CONCEPTS, writing=writing))[0]
    lineage = merge(*(file.artifact for file in files))
    made = [each for each in ancestors(lineage) if each.name in {file.artifact.name for file in files}]
    return {
        "version": snapshot.version,
        **_named(query),
        **found.values,
        "models": [{"name": each.name, "digest": each.digest} for each in made],
    }


def embedding_scores(space: Space, query: np.ndarray, columns: slice) -> np.ndarray:
    """Return the similarity of an embedding to all of a space, over some columns.

    For ternary embeddings, these are exact dot products, counted in the bit planes. For others they are
    cosines, and 0 for a row of zeros.

    Args:
        space: the embeddings.
        query: an embedding as a store has it.
        columns: which columns are compared.
    """
    if space.dtype != TERNARY:
        vector = query[columns].astype(np.float32)
        parts = [_cosines(block[:, columns].astype(np.float32), vector) for block in _blocks(space.rows)]
        return np.concatenate([np.zeros(0), *parts])
    inside = np.zeros((1, space.features), dtype=np.int8)
    inside[:, columns] = 1
    mask = pack(inside)[0]  # of the first plane; the second one of `inside` is empty
    half = len(mask) // 2
    return ternary_products(space.rows, query & np.concatenate([mask[:half], mask[:half]]))


def samples(session: Session) -> list[Values]:
    """Return some images of the catalog, as matches show them, for a first look."""
    return [_shown(session, CATALOG, each) for each in session.snapshot.samples]


def layers_of(session: Session) -> list[str]:
    """Return the layers by which embeddings can be compared separately; none if there is only one."""
    stored = session.snapshot.embeddings
    names = [layer.name for layer in stored.layers] if stored else []
    return names if len(names) > 1 else []


def _image_matches(
    session: Session,
    space: Space,
    scores: np.ndarray,
    filters: Filters,
    k: int,
    query: QueryImage | None,
    true: set[str] | None,
) -> Values:
    """Return the best images that pass the filters, and how many passed."""
    places = _passing(session, space, filters, query)
    best = [int(places[each]) for each in top_k(scores[places], k)]
    matches = [
        {"rank": rank, "score": float(scores[place]), "id": space.ids[place]}
        | _shown(session, filters.where, space.ids[place])
        | {"true": space.ids[place] in true if true else None}
        for rank, place in enumerate(best, start=1)
    ]
    return {"candidates": len(places), "matches": matches}


def _passing(session: Session, space: Space, filters: Filters, query: QueryImage | None) -> np.ndarray:
    """Return the positions of the images that pass the filters, without the image of the query."""
    if filters.where == FOLDER:
        photos = _indexed(session).by_name
        passing = [query is None or photos[each].sha256 != query.sha256 for each in space.ids]
        return np.flatnonzero(np.array(passing, dtype=bool))
    captioned = session.snapshot.catalog.captioned
    passing = [True] * len(space.ids)
    if filters.split or filters.tag:
        passing = [selected(captioned[each], filters.split, filters.tag) for each in space.ids]
    if query and query.id in space.places:
        passing[space.places[query.id]] = False
    return np.flatnonzero(np.array(passing, dtype=bool))


def _shown(session: Session, where: str, image_id: str) -> Values:
    """Return what a match shows of an image."""
    if where == FOLDER:
        digest = _indexed(session).by_name[image_id].sha256
        return {"image": None, "name": image_id, "picture": digest, "split": None, "sentences": []}
    catalog = session.snapshot.catalog
    file, record = catalog.images.get(image_id), catalog.captioned.get(image_id)
    return {
        "image": image_id,
        "name": image_id,
        "picture": file.sha256 if file else None,
        "split": record.split if record else None,
        "sentences": list(record.captions) if record else [],
    }


def _space(session: Session, where: str, kind: str) -> Space:
    """Return the rows that are searched."""
    joint, embeddings = session.snapshot.joint, session.snapshot.embeddings
    found = (joint.images if joint else None) if kind == MODEL else embeddings
    if where == FOLDER:
        index = _indexed(session)
        found = index.vectors if kind == MODEL else index.embeddings
    if found is None:
        raise AbsentError("; ".join(session.snapshot.notes))
    return found


def _indexed(session: Session) -> IndexedFolder:
    state = session.folder
    if state is None:
        raise AbsentError("there is no folder; start `fne serve --in FOLDER`")
    if state.index is None:
        raise AbsentError(state.message or "the folder is still being indexed")
    return state.index


def _columns(space: Space, layer: str | None) -> slice:
    if layer is None:
        return slice(0, space.features)
    start = 0
    for each in space.layers:
        if each.name == layer:
            return slice(start, start + each.features)
        start += each.features
    raise InputError(
        f"there is no layer {layer!r}; the layers are {', '.join(each.name for each in space.layers)}"
    )


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    return (rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK))


def _cosines(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    found: np.ndarray = rows @ vector / np.where(norms > 0, norms, 1.0)
    return found


def _row(space: Space | None, image_id: str) -> np.ndarray | None:
    return space.rows[space.places[image_id]] if space and image_id in space.places else None


def _unpacked(space: Space, row: np.ndarray) -> np.ndarray:
    values = unpack(row[None], space.features) if space.dtype == TERNARY else row[None]
    return values.astype(np.float32)


def _named(query: QueryImage) -> Values:
    return {"image": query.id, "photo": query.sha256}


def _answer(session: Session, by: str, measure: str, where: str, found: Values) -> Values:
    folder = session.folder.path.resolve().name if session.folder and where == FOLDER else None
    return {
        "version": session.snapshot.version,
        "by": by,
        "measure": measure,
        "pool": folder or "the catalog",
        "text": None,
        "unknown_words": [],
        **found,
    }
