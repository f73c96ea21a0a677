"""Imported vectors of images and captions of one space, evaluated as they are: nothing is trained.

The model file has no weights, so it is only a sealed header; the vectors stay in their stores.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fne.core.settings import Section, one_of
from fne.core.terminal import say
from fne.matching.classifier_file import write_classifier
from fne.matching.data import Pairs
from fne.matching.imported_matcher import ImportedVectors, open_imported
from fne.matching.model_file import IMPORTED, write_imported_model
from fne.matching.run import summary, training_metrics, warnings
from fne.matching.similarities import SIMILARITIES
from fne.matching.validate import validate
from fne.store.artifact import Lineage
from fne.store.catalog import captioned_in, read_captions, require_images, split_artifact
from fne.store.checksums import write_metrics
from fne.store.history import MODEL, write_empty_history
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import read_caption_vectors, require_one_space
from fne.text.tokens import read_tokens
from fne.training.best_epoch import Point
from fne.training.finished_runs import Finished
from fne.training.row_source import StoreRows

# Where vectors of the joint space come from: the model that is trained, or imported ones of both sides.
SOURCES = (IMPORTED, "model")


class Encode(Section):
    """The section `encode` of `params.yaml`."""

    source: Annotated[str, one_of(SOURCES)] = "model"


class Similarity(Section):
    """What imported vectors need of the section `train`; `fne check` reads the other keys."""

    model_config = Section.model_config | {"extra": "ignore"}

    similarity: Annotated[str, one_of(SIMILARITIES)] = "cosine"


@dataclass(frozen=True)
class ImportedSides:
    """Imported vectors as a model, the images of the validation split, and where all of it comes from."""

    matcher: ImportedVectors
    validation: Pairs
    lineage: Lineage


def read_imported(
    embeddings: Path, captions: Path, tokens: Path, vectors: Path, similarity: str
) -> ImportedSides:
    """Open the stores of imported vectors."""
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
