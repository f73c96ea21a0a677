"""The answers of a tagger for the images of a split."""

from collections.abc import Sequence

import numpy as np

from fne.core.errors import InputError
from fne.describing.annotations import DIGITS, Tagged
from fne.describing.concepts import CONCEPT_SOURCES, ConceptSource, concept_source
from fne.describing.settings import SCORED
from fne.describing.tagging.data import Examples, hint_labels
from fne.describing.tagging.model import Answers, Tagger
from fne.describing.validation import answer_all
from fne.store.catalog import Captioned
from fne.store.rows import Rows


def recorded_source(tagger: Tagger) -> ConceptSource:
    """Return where the concepts of a tagger came from."""
    settings = tagger.artifact.settings
    chosen = settings["concepts"]
    own = CONCEPT_SOURCES[chosen].settings.model_validate(settings["concept_sources"][chosen])
    return concept_source(chosen, own)


def images_to_tag(captioned: Sequence[Captioned], source: ConceptSource, split: str) -> list[Captioned]:
    """Return the images of a split that can be scored.

    Raises:
        InputError: if none has a true tag.
    """
    found = source.images(captioned, split)
    if not any(source.names(record) for record in found):
        usable = [each for each in SCORED if any(source.names(one) for one in source.images(captioned, each))]
        remedy = f"use `-S tag.split={usable[0]}`" if usable else "see `catalog` in params.yaml"
        raise InputError(
            f"params.yaml: tag.split is '{split}', but no image of it has tags to compare with; {remedy}"
        )
    return found


def tag_images(tagger: Tagger, records: Sequence[Captioned], rows: Rows) -> Answers:
    """Tag images of the catalog."""
    # Labels and order serve training only; without them an image is just a row and its hints.
    labels = np.zeros((len(records), len(tagger.concepts.names)), dtype=bool)
    hints = hint_labels(records, tagger.hints) if tagger.hints else None
    order = np.arange(len(tagger.concepts.names))
    examples = Examples([record.id for record in records], rows, labels, hints, order)
    return answer_all(tagger.describer, examples)


def tagged_images(ids: Sequence[str], answers: Answers, concepts: Sequence[str], top: int) -> list[Tagged]:
    """Return answers in words, as `annotations/tags.jsonl` has them."""
    found = []
    for number, image in enumerate(ids):
        probabilities = None if answers.probabilities is None else answers.probabilities[number]
        likeliest = None
        if probabilities is not None:
            likeliest = [concepts[each] for each in np.argsort(-probabilities, kind="stable")[:top]]
        written = None if answers.written is None else [concepts[each] for each in answers.written[number]]
        rounded = None if probabilities is None else [round(float(each), DIGITS) for each in probabilities]
        found.append(Tagged(image, written, likeliest, rounded))
    return found
