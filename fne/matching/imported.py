"""Imported vectors of images and captions of one space, evaluated as they are: nothing is trained.

The model file has no weights, so it is only a sealed header; the vectors stay in their stores. For the
validation and for the stage `encode`, they take the place of a model's outputs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fne.core.distributed_layers import Step
from fne.core.params import Section, one_of
from fne.core.terminal import say
from fne.matching.classifier_file import write_classifier
from fne.matching.data import Pairs
from fne.matching.model import Matcher, Shape
from fne.matching.model_file import IMPORTED, imported_shape, write_imported_model
from fne.matching.run import summary, training_metrics, warnings
from fne.matching.similarities import SIMILARITIES, find_similarity
from fne.matching.validate import validate
from fne.store.artifact import Lineage
from fne.store.catalog import captioned_in, read_captions, require_images, split_artifact
from fne.store.checksums import write_metrics
from fne.store.history import MODEL, write_empty_history
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionVectors, read_caption_vectors, require_one_space
from fne.text.tokens import read_tokens
from fne.training.best_epoch import Point
from fne.training.finished_runs import Finished
from fne.training.row_source import StoreRows

# Where vectors of the joint space come from: the model that is trained, or imported ones of both sides.
SOURCES = (IMPORTED, "model")


class Encode(Section):
    """The section `encode` of `params.yaml`."""

    source: Annotated[str, one_of(SOURCES), Field(examples=["model"])]


class Similarity(Section):
    """What imported vectors need of the section `train`; `fne check` reads the other keys."""

    model_config = Section.model_config | {"extra": "ignore"}

    similarity: Annotated[str, one_of(SIMILARITIES)]


class ImportedVectors(Matcher):
    """A model whose outputs are imported vectors.

    Args:
        captions: the vectors of all captions (captions, dim); a caption's number is counted from 1.
        similarity: a key of `SIMILARITIES`. For cosines, vectors are scaled to length one.
    """

    def __init__(self, captions: Tensor, similarity: str) -> None:
        nn.Module.__init__(self)
        self.shape = Shape(**imported_shape(len(captions), captions.shape[1], similarity))
        self.similarity = find_similarity({"source": IMPORTED, "similarity": similarity})
        self.captions = nn.Parameter(captions, requires_grad=False)

    def embed_images(self, rows: Tensor, step: Step | None = None) -> Tensor:
        """Return image vectors (images, dim)."""
        return self.normalize(rows)

    def embed_captions(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Return the vectors of captions (captions, dim), given as numbers (captions, 1)."""
        return self.normalize(self.captions[words[:, 0] - 1])

    def normalize(self, vectors: Tensor) -> Tensor:
        """Scale vectors to length one for cosines; other similarities see them as they are."""
        return functional.normalize(vectors, dim=1) if self.shape.similarity == "cosine" else vectors

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return no weights: the vectors are in stores of their own."""
        return {}


def open_imported(rows: Rows, captions: CaptionVectors | None, similarity: str) -> ImportedVectors:
    """Return imported vectors as a model.

    Raises:
        InputError: if there are no vectors of captions, or if the two sides do not fit.
    """
    return ImportedVectors(torch.from_numpy(require_one_space(rows, captions).values), similarity)


@dataclass(frozen=True)
class ImportedSides:
    """Imported vectors as a model, the images of the validation split, and where all of it comes from."""

    matcher: ImportedVectors
    validation: Pairs
    lineage: Lineage


def read_imported(
    embeddings: Path, captions: Path, tokens: Path, vectors: Path, similarity: str
) -> ImportedSides:
    """Open the stores of imported vectors.

    Raises:
        InputError: if they do not belong together, or if the validation split has no images.
    """
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    sides = require_one_space(rows, read_caption_vectors(vectors))
    validation = Pairs(captioned_in(captioned, "val"), StoreRows(rows), sides.tokens(words))
    require_images(validation, "val", least=1, purpose="validation")
    lineage = recorded_lineage(
        rows.artifact, split_artifact(captions, captioned, "train"), catalog, words.artifact, sides.artifact
    )
    return ImportedSides(open_imported(rows, sides, similarity), validation, lineage)


def write_imported(sides: ImportedSides, model: Path, classifier: Path, history: Path, metrics: Path) -> None:
    """Write the header, an empty classifier, an empty history and the metrics of the validation split."""
    point = Point(0, 1, 0.0, {}, validate(sides.matcher, sides.validation))
    found = training_metrics(Finished([point], point, {}), sides.validation.caption_counts)
    made_with = {key: found[key] for key in ("best_epoch", "started")}
    written = write_imported_model(model, sides.matcher.shape, made_with, sides.lineage)
    write_classifier(classifier, None, written.settings, written)
    write_empty_history(history, written.digest, MODEL)
    write_metrics(metrics, found)
    say(f"imported vectors, nothing is trained; {summary(found)}")
    for warning in warnings(found, IMPORTED):
        say(f"Warning: {warning}", err=True)
