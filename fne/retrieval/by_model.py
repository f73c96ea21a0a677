"""Search with the trained model: images for a sentence, sentences for an image.

Sentences are embedded and scores computed with NumPy, since importing torch takes longer than
all of that; torch is imported where an image is new, or a variant has no NumPy twin.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fne.captions.vocabulary import read_vocabulary
from fne.matching.modelfile import ModelFile, read_model_file
from fne.matching.sentence import PREFIX, SENTENCE_ENCODERS, embed_sentence
from fne.retrieval.answer import Answer, Match, best
from fne.retrieval.pools import Pool, catalog_pool, folder_pool
from fne.retrieval.project import Catalog, Project
from fne.retrieval.query import New, Picture
from fne.retrieval.scores import score
from fne.retrieval.words import read_sentence
from fne.store.lineage import Artifact, merge
from fne.store.rows import Rows

MODEL = "model"


def images_for(project: Project, text: str, folder: Path | None, k: int) -> Answer:
    """Rank the images of the catalog, or of a folder, for a sentence."""
    vocabulary = read_vocabulary(project.vocabulary)
    sentence = read_sentence(text, vocabulary)
    model = read_model_file(project.model, PREFIX)
    merge(model.artifact, vocabulary.artifact)
    catalog = project.catalog
    if folder:
        pool = _folder_pool(project, folder, model.artifact)
    else:
        rows = Rows.open(project.image_vectors, "image_vectors")
        merge(model.artifact, vocabulary.artifact, rows.artifact, *catalog.artifacts)
        pool = catalog_pool(catalog, rows)
    caption = _embed_sentence(model, sentence.numbers)[None]
    similarity = model.shape["similarity"]
    scores = score(similarity, ((images, caption) for _, images in pool.rows.blocks(pool.keys)))
    return Answer(
        found="images",
        text=text,
        image=None,
        file=None,
        by=MODEL,
        measure=similarity,
        pool=pool.name,
        candidates=len(pool.ids),
        matches=pool.matches(scores, k, None if folder else _described(catalog, text)),
        unknown_words=sentence.unknown,
        unreadable=pool.unreadable,
    )


def sentences_for(project: Project, picture: Picture, k: int) -> Answer:
    """Rank the sentences of the catalog for an image."""
    catalog = project.catalog
    rows = Rows.open(project.caption_vectors, "caption_vectors")
    lineage = merge(rows.artifact, *catalog.artifacts)
    similarity = lineage["model"]["settings"]["similarity"]
    ids = sorted(rows.ids)
    image = _embed_picture(project, picture, rows.artifact)[None]
    scores = score(similarity, ((image, captions) for _, captions in rows.blocks(ids)))
    return Answer(
        found="sentences",
        text=None,
        image=picture.id,
        file=str(picture.file) if picture.file else None,
        by=MODEL,
        measure=similarity,
        pool="the catalog",
        candidates=len(ids),
        matches=_sentence_matches(ids, catalog, scores, picture.id, k),
    )


def _sentence_matches(
    ids: Sequence[str], catalog: Catalog, scores: np.ndarray, image_id: str | None, k: int
) -> list[Match]:
    # Only an image with sentences of its own can have found them.
    paired = image_id is not None and bool(catalog.sentences(image_id))
    found = []
    for rank, position in enumerate(best(scores, k), start=1):
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
                image == image_id if paired else None,
            )
        )
    return found


def _embed_sentence(model: ModelFile, numbers: Sequence[int]) -> np.ndarray:
    if model.shape["text_encoder"] in SENTENCE_ENCODERS:
        return embed_sentence(model, numbers)
    from fne.retrieval import with_torch

    return with_torch.embed_sentence(model.artifact.path, numbers)


def _embed_picture(project: Project, picture: Picture, captions: Artifact) -> np.ndarray:
    """Return the vector of an image of the catalog as it is kept, or make one for a new file."""
    if isinstance(picture, New):
        from fne.retrieval.with_torch import embed_picture

        return embed_picture(project, picture, captions)
    rows = Rows.open(project.image_vectors, "image_vectors")
    merge(rows.artifact, captions)
    kept: np.ndarray = rows.read([picture.id])[0]
    return kept


def _folder_pool(project: Project, path: Path, model: Artifact) -> Pool:
    from fne.retrieval.index import Maker, index_folder, list_folder  # imports what decodes images

    def open_maker() -> Maker:
        from fne.retrieval import with_torch

        return with_torch.open_maker(project, model)

    folder = list_folder(path, project.runtime.workers, project.scratch)
    return folder_pool(folder, index_folder(folder, MODEL, model, project.scratch, open_maker))


def _described(catalog: Catalog, text: str) -> set[str]:
    """Return the images that the catalog describes with this very sentence."""
    wanted = _folded(text)
    return {
        record.id
        for record in catalog.captioned.values()
        if any(_folded(caption) == wanted for caption in record.captions)
    }


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
