"""Search with the trained model: images for a sentence, sentences for an image."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.captions.vocabulary import read_vocabulary
from fne.matching.model import Matcher
from fne.matching.modelfile import read_model
from fne.ranking.similarities import SIMILARITIES
from fne.retrieval.answer import Answer, Match, best
from fne.retrieval.index import Maker, index_folder, list_folder
from fne.retrieval.pools import Pool, catalog_pool, folder_pool
from fne.retrieval.project import Catalog, Project
from fne.retrieval.query import New, Picture
from fne.retrieval.words import Sentence, read_sentence
from fne.store.layout import Layer
from fne.store.lineage import Artifact, merge
from fne.store.rows import Rows

MODEL = "model"


def images_for(project: Project, text: str, folder: Path | None, k: int) -> Answer:
    """Rank the images of the catalog, or of a folder, for a sentence."""
    vocabulary = read_vocabulary(project.vocabulary)
    sentence = read_sentence(text, vocabulary)
    matcher, origin = read_model(project.model)
    merge(origin, vocabulary.artifact)
    catalog = project.catalog
    if folder:
        pool = _folder_pool(project, folder, matcher, origin)
    else:
        rows = Rows.open(project.image_vectors, "image_vectors")
        merge(origin, vocabulary.artifact, rows.artifact, *catalog.artifacts)
        pool = catalog_pool(catalog, rows)
    images = torch.from_numpy(pool.rows.read(pool.keys))
    scores = matcher.similarity(images, _embed_sentence(matcher, sentence))[:, 0]
    return Answer(
        found="images",
        text=text,
        image=None,
        file=None,
        by=MODEL,
        measure=matcher.shape.similarity,
        pool=pool.name,
        candidates=len(pool.ids),
        matches=pool.matches(scores.numpy(), k, None if folder else _described(catalog, text)),
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
    captions = torch.from_numpy(rows.read(ids))
    scores = SIMILARITIES[similarity](_embed_picture(project, picture, rows), captions)[0].numpy()
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


@torch.no_grad()
def _embed_sentence(matcher: Matcher, sentence: Sentence) -> Tensor:
    matcher.eval()
    return matcher.embed_captions(torch.tensor([sentence.numbers]), torch.tensor([len(sentence.numbers)]))


@torch.no_grad()
def _embed_rows(matcher: Matcher, rows: np.ndarray) -> Tensor:
    matcher.eval()
    return matcher.embed_images(torch.from_numpy(rows.astype(np.float32)))


def _embed_picture(project: Project, picture: Picture, captions: Rows) -> Tensor:
    """Return the vector of an image of the catalog as it is kept, or make one for a new file."""
    if not isinstance(picture, New):
        rows = Rows.open(project.image_vectors, "image_vectors")
        merge(rows.artifact, captions.artifact)
        return torch.from_numpy(rows.read([picture.id]))
    from fne.retrieval.unseen import open_embedder  # slow to import, and not always needed

    matcher, origin = read_model(project.model)
    merge(origin, captions.artifact)
    embedder = open_embedder(origin, project.weights, project.statistics, project.runtime, project.scratch)
    return _embed_rows(matcher, embedder.embed(picture)[None])


def _folder_pool(project: Project, path: Path, matcher: Matcher, origin: Artifact) -> Pool:
    def open_maker() -> Maker:
        from fne.retrieval.unseen import open_embedder  # slow to import, and not always needed

        embedder = open_embedder(
            origin, project.weights, project.statistics, project.runtime, project.scratch
        )

        def rows(digests: Sequence[str]) -> np.ndarray:
            return _embed_rows(matcher, embedder.rows(digests)).numpy()

        return Maker([Layer("joint", matcher.shape.embed_dim)], "float32", embedder.prepare, rows)

    folder = list_folder(path, project.runtime.workers, project.scratch)
    return folder_pool(folder, index_folder(folder, MODEL, origin, project.scratch, open_maker))


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
