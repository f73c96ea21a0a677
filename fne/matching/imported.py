"""Imported vectors of images and captions of one space, evaluated as they are: nothing is trained.

The model file has no weights, so it is only a sealed header; the vectors stay in their stores. Importing
torch would take longer than everything here, so the stage `train` does without it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fne.core.params import Section, one_of
from fne.core.terminal import say
from fne.evaluation.metrics.numpy_ranks import rank_in_numpy
from fne.evaluation.metrics.recall import Metrics, retrieval_values
from fne.matching.classifier_file import write_classifier
from fne.matching.model_file import IMPORTED, write_imported_model
from fne.matching.numpy_similarities import NUMPY_SIMILARITIES, scale_to_unit
from fne.matching.results import imported_metrics, summary, warnings
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, captioned_in, read_captions, require_images, split_artifact
from fne.store.checksums import write_metrics
from fne.store.history import MODEL, write_empty_history
from fne.store.layout import count_views, mean_of_views
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionVectors, read_caption_vectors, require_one_space
from fne.text.tokens import read_tokens

# Where vectors of the joint space come from: the model that is trained, or imported ones of both sides.
SOURCES = (IMPORTED, "model")


class Encode(Section):
    """The section `encode` of `params.yaml`."""

    source: Annotated[str, one_of(SOURCES), Field(examples=["model"])]


class Similarity(Section):
    """What imported vectors need of the section `train`; `fne check` reads the other keys."""

    model_config = Section.model_config | {"extra": "ignore"}

    similarity: Annotated[str, one_of(NUMPY_SIMILARITIES)]


@dataclass(frozen=True)
class ImportedSides:
    """Imported vectors of both sides, the images of the validation split, and where all of it comes from."""

    rows: Rows
    captions: CaptionVectors
    validation: list[Captioned]
    lineage: Lineage

    @property
    def caption_counts(self) -> np.ndarray:
        """How many captions each image of the validation split has (images)."""
        return np.array([len(record.captions) for record in self.validation])


def read_imported(embeddings: Path, captions: Path, tokens: Path, vectors: Path) -> ImportedSides:
    """Open the stores of imported vectors.

    Raises:
        InputError: if they do not belong together, or if the validation split has no images.
    """
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    sides = require_one_space(rows, read_caption_vectors(vectors))
    validation = captioned_in(captioned, "val")
    rows.check_ids([record.id for record in validation])
    require_images(validation, "val", least=1, purpose="validation")
    lineage = recorded_lineage(
        rows.artifact, split_artifact(captions, captioned, "train"), catalog, words.artifact, sides.artifact
    )
    return ImportedSides(rows, sides, validation, lineage)


def write_imported(
    sides: ImportedSides, similarity: str, model: Path, classifier: Path, history: Path, metrics: Path
) -> None:
    """Write the header, an empty classifier, an empty history and the metrics of the validation split.

    Args:
        sides: the vectors.
        similarity: see `validate_imported`.
        model: the file of the header, which records the two sides.
        classifier: the file of the classifier.
        history: the folder of the history.
        metrics: the file of the metrics.
    """
    found = imported_metrics(validate_imported(sides, similarity), sides.caption_counts)
    captions, dim = sides.captions.values.shape
    made_with = {key: found[key] for key in ("best_epoch", "started")}
    written = write_imported_model(model, captions, dim, similarity, made_with, sides.lineage)
    write_classifier(classifier, None, written.settings, written)
    write_empty_history(history, written.digest, MODEL)
    write_metrics(metrics, found)
    say(f"imported vectors, nothing is trained; {summary(found)}")
    for warning in warnings(found, IMPORTED):
        say(f"Warning: {warning}", err=True)


def validate_imported(sides: ImportedSides, similarity: str) -> Metrics:
    """Rank all captions and images of the validation split against each other.

    Args:
        sides: the vectors.
        similarity: a key of `NUMPY_SIMILARITIES`. For cosines, vectors are scaled to length one.
    """
    rows = sides.rows.read([record.id for record in sides.validation]).astype(np.float32, copy=False)
    images = mean_of_views(rows, count_views(sides.rows.layers))
    places = {caption: place for place, caption in enumerate(sides.captions.ids)}
    own = [places[caption] for record in sides.validation for caption in record.caption_ids]
    captions = sides.captions.values[own]
    if similarity == "cosine":
        images, captions = scale_to_unit(images), scale_to_unit(captions)
    counts = sides.caption_counts
    return retrieval_values(*rank_in_numpy(images, captions, counts, NUMPY_SIMILARITIES[similarity]))
