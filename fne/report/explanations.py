"""What explains the examples of a page: words that matter, words shared with the truth, and a first look.

A sentence is shown as a list of `ShownWord`: with the level of the color behind each word, if the model could
be asked, and whether it also stands in a true sentence of the image.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fne.evaluation.read_sentences import SentenceReader
from fne.matching.word_removal import LEVELS, Word, as_written, levels
from fne.report.gallery import Candidate, Example, Gallery
from fne.report.sources import Direction, Evaluation
from fne.store.catalog import Captioned
from fne.text.tokenizer import tokenize

# A word in the sentences of more images than this is in nearly every sentence, so that it shows nothing.
COMMON = 0.25
STRIP = 3  # good matches in the first look


@dataclass(frozen=True)
class ShownWord:
    """A word of a sentence; `part` is its drop of the score by the largest of the sentence, if known."""

    text: str
    shared: bool
    part: float = 0.0
    drop: float | None = None

    @property
    def joined(self) -> bool:
        """Whether no space stands before it."""
        return not self.text[:1].isalnum()


@dataclass(frozen=True)
class Glance:
    """An image in the first look at results; `good` tells a good match from a failure."""

    id: str
    text: str
    note: str
    good: bool


@dataclass(frozen=True)
class Explanations:
    """The words of sentences, by the id of the image that they are compared with and that of the sentence."""

    words: dict[tuple[str, str], list[ShownWord]] = field(default_factory=dict)
    asked: bool = False  # whether the model could be asked


def explain_gallery(
    gallery: Gallery, evaluation: Evaluation, captioned: Sequence[Captioned], reader: SentenceReader | None
) -> tuple[Gallery, Explanations]:
    """Return a gallery in which each image has a true sentence, and the words of all of its sentences."""
    ids = set(evaluation.image_to_text.query_ids)
    captions = {
        each.id: dict(zip(each.caption_ids, each.captions, strict=True))
        for each in captioned
        if each.id in ids
    }
    if reader:
        gallery = replace(gallery, images=[_with_truth(each, captions, reader) for each in gallery.images])
    texts = {id_: text for each in captions.values() for id_, text in each.items()}
    owner = {id_: image for image, each in captions.items() for id_ in each}
    listed = [(each.id, found.id) for each in gallery.images for found in each.candidates]
    listed += [(each.candidates[0].id, each.id) for each in gallery.sentences if each.candidates]
    pairs = [pair for pair in dict.fromkeys(listed) if pair[1] in texts]
    told = reader.words((image, texts[sentence]) for image, sentence in pairs) if reader else {}
    in_image = {
        image: set(tokenize(" ".join(each.values()), lowercase=True)) for image, each in captions.items()
    }
    counts = Counter(word for each in in_image.values() for word in each)
    common = {word for word, count in counts.items() if count > COMMON * len(in_image)}
    found = {}
    for image, sentence in pairs:
        # All words of a true sentence stand in a true sentence.
        true = in_image[image] - common if owner[sentence] != image else set()
        text = texts[sentence]
        words = shown_words(text, true, told.get((image, text)))
        if reader or any(each.shared for each in words):
            found[image, sentence] = words
    return gallery, Explanations(found, reader is not None)


def shown_words(text: str, true: set[str], told: Sequence[Word] | None) -> list[ShownWord]:
    """Return the words of a sentence; those that are in `true`, which is in lower case, are shared."""
    if told is None:
        return [ShownWord(each, _is_word(each) and each.lower() in true) for each in _cut(text)]
    return [
        ShownWord(each.text, _is_word(each.text) and each.text.lower() in true, level / LEVELS, each.drop)
        for each, level in zip(told, levels(told), strict=True)
    ]


def glance(
    gallery: Gallery, direction: Direction, texts: Mapping[str, str], thumbnails: Mapping[str, str]
) -> list[Glance]:
    """Return sentences with the image that was found: good matches first, then the most confident error."""
    shown: dict[str, Example] = {}
    for wanted, most in ((True, STRIP), (False, STRIP + 1)):
        known = [each for each in gallery.sentences if each.candidates and (each.rank == 1) is wanted]
        for each in sorted(known, key=lambda each: -(each.candidates[0].score or 0.0)):
            if len(shown) < most and each.candidates[0].id in thumbnails:
                shown.setdefault(each.candidates[0].id, each)
    return [
        Glance(
            each.candidates[0].id,
            texts.get(each.id, each.id),
            f"first of {direction.pool:,}"
            if each.rank == 1
            else f"wrong; the true image has rank {each.rank:,}",
            each.rank == 1,
        )
        for each in shown.values()
    ]


def _with_truth(
    example: Example, captions: Mapping[str, Mapping[str, str]], reader: SentenceReader
) -> Example:
    true = captions.get(example.id, {})
    if not true or any(each.true for each in example.candidates):
        return example
    best = list(true)[reader.best(example.id, list(true.values()))]
    return replace(example, candidates=[*example.candidates[:-1], Candidate(best, example.rank, None, True)])


def _cut(text: str) -> list[str]:
    return as_written(text, tokenize(text, lowercase=True))


def _is_word(text: str) -> bool:
    return any(letter.isalnum() for letter in text)
