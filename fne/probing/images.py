"""The images that layers are measured on, with their captions and labels."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fne.matching.closed_form import CaptionedImages
from fne.store.catalog import Captioned
from fne.text.tokenizer import tokenize_captions
from fne.text.vocabulary import Tokenize, choose_words

LEAST = 5  # training images of a label that is probed
JUDGED = 0.2  # fraction of a gallery that judges layers, at most
# The words of every caption as numbers, by the caption's id; 0 stands for none.
Words = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Images:
    """Images that something is measured on, with what is known of them."""

    records: list[Captioned]
    captions: CaptionedImages | None
    labels: np.ndarray  # (images, labels)

    @property
    def ids(self) -> list[str]:
        """The ids of the images."""
        return [record.id for record in self.records]

    def select(self, chosen: np.ndarray) -> "Images":
        """Return some of the images."""
        captions = self.captions and self.captions.select(chosen)
        return Images([self.records[each] for each in chosen], captions, self.labels[chosen])


def images_of(
    captioned: Iterable[Captioned],
    split: str,
    known: Iterable[str],
    words: Words,
    labels: Sequence[str],
) -> Images:
    """Return the images of a split that a store knows, those with captions if there are any."""
    stored = set(known)
    records = [each for each in captioned if each.split == split and each.id in stored]
    if words:
        records = [each for each in records if each.captions]
    own = np.array([[each in labels_of(record) for each in labels] for record in records], dtype=bool)
    sentences = [[np.array(words[each]) for each in record.caption_ids] for record in records if words]
    captions = CaptionedImages.of([each.id for each in records], sentences) if sentences else None
    return Images(records, captions, own.reshape(len(records), len(labels)))


def number_words(captioned: Sequence[Captioned], settings: Tokenize) -> Words:
    """Return the words of all captions, cut as the stage `tokenize` cuts them; {} without captions."""
    cut = tokenize_captions(captioned, settings.lowercase, end_of_sentence=False, cut=settings.cut)
    numbers = {word: number for number, word in enumerate(choose_words((own for _, own in cut.values()), 1))}
    longest = settings.longest or None
    return {each: [numbers[word] for word in own[:longest]] for each, (_, own) in cut.items()}


def divide_gallery(captioned: Sequence[Captioned], validation: int, seed: int) -> list[Captioned]:
    """Return images with their splits; of a collection that has none, drawn ones judge and others train."""
    if any(each.split != "gallery" for each in captioned):
        return list(captioned)
    judged = min(validation, int(JUDGED * len(captioned)))
    order = np.random.default_rng(seed).permutation(len(captioned))
    splits = np.where(order < judged, "val", "train").tolist()
    return [replace(each, split=split) for each, split in zip(captioned, splits, strict=True)]


def labels_of(record: Captioned) -> set[str]:
    """Return the tags of an image, or the folder it is in."""
    folder = record.id.rpartition("/")[0]
    return set(record.tags) or ({folder} if folder else set())


def known_labels(captioned: Sequence[Captioned], most: int) -> tuple[list[str], bool]:
    """Return the labels to probe, and whether every image has exactly one."""
    own = [labels_of(record) for record in captioned if record.split == "train"]
    counts = Counter(label for labels in own for label in labels)
    enough = [label for label, count in counts.items() if LEAST <= count < len(own)]
    known = sorted(sorted(enough), key=lambda label: -counts[label])[:most]
    judged = [labels_of(record) for record in captioned if record.split == "val"]
    single = all(len(each & set(known)) == 1 for each in [*own, *judged])
    return known, single and len(known) > 1
