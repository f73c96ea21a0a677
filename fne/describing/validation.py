"""Validation of a tagger, and the detection of one that ignores the images.

The best weights are those with the highest sum of `class_f1` and `image_f1` of the tags that are
written. A tagger that writes none answers with its likeliest concepts, and its best weights are those
with the highest mean average precision.
"""

from collections.abc import Sequence

import numpy as np

from fne.describing.model import Describer
from fne.describing.tagging.data import Examples
from fne.describing.tagging.model import Answers, answer, written_mask
from fne.evaluation.metrics.tag_metrics import label_metrics, mean_average_precision, top_k
from fne.training.best_epoch import Point, Scores

BLOCK = 256  # images tagged at once
# How many of the likeliest concepts are the answer of a tagger without a decoder.
LIKELIEST = 3
# How many validations in a row are reported.
IN_A_ROW = 5


def validate(describer: Describer, examples: Examples, learns: str) -> Scores:
    """Tag images and score the tags; the first score chooses the best weights.

    Args:
        describer: the tagger.
        examples: the images.
        learns: what the running phase learns. Where that is the recognizer alone, its mean average precision
            chooses, less 100: below every score of the phases after it, which train the decoder.
    """
    found = answer_all(describer, examples)
    ranked = {}
    if found.probabilities is not None:
        ranked["mAP"] = mean_average_precision(found.probabilities, examples.labels)
    if found.written is not None:
        mask = written_mask(found.written, examples.labels.shape[1])
    else:
        assert found.probabilities is not None, "a tagger has a recognizer, a decoder or both"
        mask = top_k(found.probabilities, LIKELIEST)
    scores = label_metrics(mask, examples.labels)
    values = {"f1_sum": scores["class_f1"] + scores["image_f1"]}
    values |= {name: scores[name] for name in ("class_f1", "image_f1", "pooled_f1", "predicted_length")}
    values |= {"distinct": float(len(np.unique(mask, axis=0)))} | ranked
    if found.written is None:
        return Scores(ranked | values)
    return Scores({"mAP_below_100": ranked["mAP"] - 100} | values if learns == "recognizer" else values)


def answer_all(describer: Describer, examples: Examples) -> Answers:
    """Tag all images of a split, block by block."""
    parts = [
        answer(describer, examples.images(block), examples.read_hints(block))
        for block in np.array_split(np.arange(len(examples)), -(-len(examples) // BLOCK))
    ]
    probabilities = [each.probabilities for each in parts if each.probabilities is not None]
    written = [tags for each in parts for tags in each.written or []]
    return Answers(
        np.concatenate(probabilities) if probabilities else None,
        None if describer.decoder is None else written,
    )


def collapse_warning(points: Sequence[Point], images: int) -> str | None:
    """Return a warning if the last validations of a phase wrote the same tags for all images."""
    recent = [point.scores.values["distinct"] for point in points[-IN_A_ROW:]]
    if images < 2 or len(recent) < IN_A_ROW or max(recent) > 1:
        return None
    return (
        f"the tagger ignores the images: it writes the same tags for all {images} validation images; let it "
        "train longer, use train_tagger.rows=standardized, or try another train_tagger.learning_rate"
    )


def summary(best: Point) -> str:
    """Describe the validation of the weights that training kept."""
    values = best.scores.values
    ranked = f"mAP {values['mAP']:.1f}, " if "mAP" in values else ""
    return (
        f"best epoch {best.epoch} (phase {best.phase}): validation {ranked}"
        f"F1 per class {values['class_f1']:.1f}, per image {values['image_f1']:.1f}, "
        f"pooled {values['pooled_f1']:.1f}, {values['predicted_length']:.1f} tags per image"
    )
