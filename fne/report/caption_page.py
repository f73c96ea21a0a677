"""The page about captions: scores beside baselines, learning curves, and examples from best to worst."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fne.describing.annotations import Written
from fne.describing.data import reference_sentences
from fne.describing.settings import CAPTIONER
from fne.evaluation.score_captions import CONSENSUS, CONSTANT, NEAREST, CaptionScores
from fne.report.description_page import at_a_glance, choose_thirds, render_description
from fne.report.facts import settings_of
from fne.report.frame import Frame
from fne.store.catalog import Captioned

PAGE = "captions_page"  # in lineages, records and `params.yaml`
MAIN = "val/CIDEr-D"  # the validation score that is drawn first
LEVELS_NOTE = (
    "Chance is a caption of a training image drawn at random; the baseline is the best one above, on the "
    "validation images."
)
TITLES = {
    CAPTIONER: ("The captioner", "this model"),
    CONSENSUS: ("Consensus of neighbors", "of the captions of the nearest training images, the most typical"),
    NEAREST: ("Nearest image", "a caption of the nearest training image"),
    CONSTANT: ("One sentence", "the same training caption for all images"),
}
SCORES = ("CIDEr-D", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "METEOR")  # that there may be
OTHERS = {
    "length_ratio": ("Length ratio", "words written by words of the closest human caption", "{:.2f}"),
    "distinct_captions": ("Distinct captions", "of all images", "{:.0%}"),
    "found_in_training": (
        "Found in training",
        "captions that are in the training set word for word",
        "{:.0%}",
    ),
    "words_used": ("Words used", "different words in all captions", "{:.0f}"),
    "empty_captions": ("Empty captions", "images without a sentence", "{:.0f}"),
}


@dataclass(frozen=True)
class ExampleWord:
    """A word of a written caption, and whether a human caption of the image has it, too."""

    text: str
    known: bool


@dataclass(frozen=True)
class CaptionExample:
    """An image with what was written about it."""

    id: str
    outcome: str  # `best`, `middle` or `worst`, by the CIDEr-D among all scored images
    score: float | None  # its CIDEr-D; None for a single image
    words: list[ExampleWord]  # the words of the caption
    others: list[str]  # the rest of the beam
    concepts: list[tuple[str, float]]  # the likeliest ones, with their probabilities in percent
    references: list[str]  # what people wrote


def choose_examples(
    scores: CaptionScores,
    written: Mapping[str, Written],
    captioned: Sequence[Captioned],
    count: int,
    seed: int,
) -> list[CaptionExample]:
    """Choose up to `count` images: the best third, the worst third, and others drawn at random between."""
    ids, records = list(scores.per_image), {each.id: each for each in captioned}
    values = np.array([score or 0.0 for score in scores.per_image.values()])
    return [
        _example(written[image], outcome, scores.per_image[image], records[image])
        for outcome, positions in choose_thirds(values, count, seed).items()
        for image in [ids[position] for position in positions]
    ]


def render_captions(scores: CaptionScores, examples: Sequence[CaptionExample], frame: Frame) -> str:
    """Return the page as HTML."""
    names = [name for name in SCORES if name in scores.metrics[CAPTIONER]]
    values = {
        "scores": scores,
        "levels_note": LEVELS_NOTE if scores.validation else "",
        "columns": names,
        "rows": [
            (title, explanation, each == CAPTIONER, _cells(each, scores, names))
            for each, (title, explanation) in TITLES.items()
        ],
        "figures": [
            (title, explanation, [form.format(scores.metrics[each][key]) for each in TITLES])
            for key, (title, explanation, form) in OTHERS.items()
        ],
        "best_baseline": TITLES[scores.best_baseline][0] if scores.above else "",
        "titles": [title for title, _ in TITLES.values()],
        "examples": examples,
        "glances": at_a_glance(
            (
                (
                    each.id,
                    " ".join(word.text for word in each.words),
                    "CIDEr-D " + ("unknown" if each.score is None else f"{each.score:.2f}"),
                    each.outcome == "best",
                )
                for each in examples
                if each.outcome != "middle"
            ),
            frame.thumbnails,
        ),
    }
    model = settings_of(frame.lineage, CAPTIONER)
    return render_description("captions.html", scores.name, model, values, frame)


def _cells(system: str, scores: CaptionScores, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return each score of a system and its interval, if it has one, as text."""
    bounds = {name: f"{low:.3f} to {high:.3f}" for name, (low, high) in scores.intervals[system].items()}
    return [(f"{scores.metrics[system][name]:.3f}", bounds.get(name, "")) for name in names]


def _example(own: Written, outcome: str, score: float | None, record: Captioned) -> CaptionExample:
    used = {word for sentence in reference_sentences([record])[record.id] for word in sentence.split()}
    return CaptionExample(
        record.id,
        outcome,
        score,
        [ExampleWord(word, word in used) for word in own.caption.split()],
        [each.text for each in own.sentences[1:]],
        [(name, 100 * value) for name, value in own.concepts.items()],
        list(record.captions),
    )
