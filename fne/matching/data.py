"""Images and captions as tensors, and the order in which training sees them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fne.core.files import missing_path, text_digest
from fne.matching.word_table import pad_captions
from fne.store.arrays import arrays_digest
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, captioned_in, read_captions, require_images, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionRows, read_caption_rows
from fne.text.tokens import Tokens, read_tokens
from fne.text.word_vectors import WordVectors, read_word_vectors
from fne.training.row_source import RowSource, StoreRows


@dataclass(frozen=True)
class PairBatch:
    """Some images, each with one of its captions.

    If there are `candidates`, only the first images have a caption of their own, and the missing captions are
    mined from the candidates (see `fne.matching.mined_captions`).
    """

    image_ids: list[str]
    caption_ids: list[str]
    views: list[int] | None = None  # the drawn view of each image, where images have several
    candidates: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.image_ids)

    def __str__(self) -> str:
        return f"images {', '.join(self.image_ids)}"

    def part(self, own: slice) -> "PairBatch":
        """Return some of the pairs."""
        return PairBatch(self.image_ids[own], self.caption_ids[own], self.views and self.views[own])

    def positives(self, negatives: str = "other_images") -> Tensor:
        """Return which pairs (images, captions) must not serve as negatives.

        With `other_images`, captions of one image are not negatives for each other; with `other_pairs`, every
        other pair is one.
        """
        images = self.numbers(negatives)
        return images[:, None] == images[None, :]

    def numbers(self, negatives: str = "other_images") -> Tensor:
        """Return a number for each pair (pairs); pairs with one number are not negatives for each other."""
        if negatives == "other_pairs":
            return torch.arange(len(self))
        _, numbers = np.unique(self.image_ids, return_inverse=True)
        return torch.from_numpy(numbers.reshape(-1))


class Pairs:
    """The captioned images of one split, with their rows, and the words or rows of their captions."""

    def __init__(
        self, captioned: Sequence[Captioned], source: RowSource, tokens: Tokens | CaptionRows
    ) -> None:
        self.captioned = list(captioned)
        self.source = source
        self._tokens = tokens
        source.check_ids(self.image_ids)
        tokens.check_ids(self.caption_ids)

    def __len__(self) -> int:
        return len(self.captioned)

    @property
    def caption_counts(self) -> np.ndarray:
        """How many captions each image has (images)."""
        return np.array([len(record.captions) for record in self.captioned])

    @property
    def caption_image(self) -> np.ndarray:
        """The position of each caption's image (captions)."""
        return np.repeat(np.arange(len(self)), self.caption_counts)

    @property
    def image_ids(self) -> list[str]:
        """The ids of all images."""
        return [record.id for record in self.captioned]

    @property
    def caption_ids(self) -> list[str]:
        """The ids of all captions, image by image."""
        return [caption_id for record in self.captioned for caption_id in record.caption_ids]

    @cached_property
    def owners(self) -> dict[str, str]:
        """The image of each caption."""
        return {caption_id: record.id for record in self.captioned for caption_id in record.caption_ids}

    def word_numbers(self) -> list[list[np.ndarray]]:
        """Return the word numbers of each caption of each image, or the number of its row."""
        return [[self._tokens.read(each) for each in record.caption_ids] for record in self.captioned]

    def digest(self) -> str:
        """Return the digest of all that training reads of these pairs; other rows of the store are not."""
        if isinstance(self._tokens, CaptionRows):
            own = self._tokens.digest(self.caption_ids)
            return text_digest(json.dumps([self.source.digest(self.image_ids), own]))
        words = [[each.tolist() for each in own] for own in self.word_numbers()]
        return text_digest(json.dumps([self.source.digest(self.image_ids), words]))

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return padded words (captions, longest) and lengths, or rows (captions, dim) and ones."""
        if isinstance(self._tokens, CaptionRows):
            rows = torch.from_numpy(self._tokens.rows(ids))
            return rows, torch.ones(len(rows), dtype=torch.int64)
        return pad_captions([self._tokens.read(caption_id) for caption_id in ids])


class Draw(Protocol):
    """How the batches of an epoch are drawn."""

    def sizes(self) -> list[int]:
        """Return the number of images of each batch, the same in all epochs."""

    def batches(self, epoch: int) -> list[PairBatch]:
        """Return the batches of an epoch, counted from 0: a function of the seed and the epoch."""


@dataclass(frozen=True)
class PairDraw:
    """Draws pairs of images and captions.

    With `drop`, an incomplete last batch is left out, unless it is the only one. With `keep`, a last batch
    of one joins the batch before it, since it would have no negative.
    """

    captioned: Sequence[Captioned]
    seed: int
    batch: int
    captions: str  # a key of `DRAWS`
    last_batch: str = "keep"
    views: int = 1  # views per image, of which one is drawn

    def sizes(self) -> list[int]:
        """Return the number of pairs of each batch."""
        drawn = sum(1 if self.captions == "one" else len(record.captions) for record in self.captioned)
        return batch_sizes(drawn, self.batch, self.last_batch)

    def batches(self, epoch: int) -> list[PairBatch]:
        """Return the batches of an epoch."""
        generator = np.random.default_rng((self.seed, epoch))
        drawn = DRAWS[self.captions](self.captioned, generator)
        images, texts = [image for image, _ in drawn], [caption for _, caption in drawn]
        # From the same generator, but last: images with a single view are drawn as they always were.
        views = generator.integers(self.views, size=len(drawn)).tolist() if self.views > 1 else None
        whole, start, batches = PairBatch(images, texts, views), 0, []
        for size in self.sizes():
            batches.append(whole.part(slice(start, start + size)))
            start += size
        return batches


def one_caption(captioned: Sequence[Captioned], generator: np.random.Generator) -> list[tuple[str, str]]:
    """Every image once, with one of its captions, as the paper has it."""
    order = generator.permutation(len(captioned))
    return [
        (record.id, record.caption_ids[generator.integers(len(record.captions))])
        for record in (captioned[position] for position in order)
    ]


def all_captions(captioned: Sequence[Captioned], generator: np.random.Generator) -> list[tuple[str, str]]:
    """Every caption once, with its image; a batch may then hold an image twice."""
    every = [(record.id, caption_id) for record in captioned for caption_id in record.caption_ids]
    return [every[position] for position in generator.permutation(len(every))]


def together(captioned: Sequence[Captioned], generator: np.random.Generator) -> list[tuple[str, str]]:
    """Every caption once, with all captions of an image one after the other, and so in one batch."""
    order = generator.permutation(len(captioned))
    return [(captioned[each].id, caption) for each in order for caption in captioned[each].caption_ids]


def batch_sizes(pairs: int, batch: int, last_batch: str) -> list[int]:
    """Return the number of pairs of each batch; see `PairDraw` about the last one.

    Example:
        >>> batch_sizes(9, 4, "keep"), batch_sizes(11, 4, "keep"), batch_sizes(11, 4, "drop")
        ([4, 5], [4, 4, 3], [4, 4])
    """
    whole, rest = divmod(pairs, batch)
    sizes = [batch] * whole
    if last_batch == "keep" and rest == 1 and whole:
        sizes[-1] += 1
    elif rest and (last_batch == "keep" or not whole):
        sizes.append(rest)
    return sizes


@dataclass(frozen=True)
class MatchingInputs:
    """The pairs for training and validation, their rows, what a model needs to know, and their origin."""

    training: Pairs
    validation: Pairs
    rows: StoreRows
    words: int
    vectors: WordVectors | None
    lineage: Lineage
    longest: int = 0  # words of a caption, of any split
    captions: CaptionRows | None = None  # which stand for words

    @property
    def features(self) -> int:
        """The length of an image row."""
        return self.rows.features

    @cached_property
    def read(self) -> dict[str, str]:
        """The digests of what training reads, by which its result is kept."""
        found = {"train": self.training.digest(), "val": self.validation.digest(), "words": str(self.words)}
        if self.vectors:
            found["vectors"] = arrays_digest({"values": self.vectors.values})
        return found

    @property
    def read_in_order(self) -> dict[str, str]:
        """The same for closed forms, which add up in the order of the store."""
        read = {*self.training.image_ids, *self.validation.image_ids}
        order = text_digest("\n".join(each for each in self.rows.store.ids if each in read))
        return self.read | {"order": order}


def read_inputs(
    embeddings: Path, captions: Path, tokens: Path, vectors: Path | None = None
) -> MatchingInputs:
    """Open the stores of training, and the pretrained word vectors, if there are any."""
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    read = read_caption_rows(vectors) if vectors else None
    pretrained = read_word_vectors(vectors) if vectors and not read else None
    if vectors and not read and not pretrained and "without_vector" in words.artifact.settings:
        raise missing_path(vectors)  # training would silently draw what was given
    given = [each.artifact for each in (pretrained, read) if each]
    lineage = recorded_lineage(
        rows.artifact, split_artifact(captions, captioned, "train"), catalog, words.artifact, *given
    )
    source = StoreRows(rows)
    training, validation = (
        Pairs(captioned_in(captioned, split), source, read or words) for split in ("train", "val")
    )
    require_images(training, "train", least=2, purpose="training")
    require_images(validation, "val", least=1, purpose="choosing the best epoch")
    size = 0 if read else words.artifact.settings["words"]
    longest = int(np.diff(words.offsets).max(initial=0))
    return MatchingInputs(training, validation, source, size, pretrained, lineage, longest, read)


DRAWS = {"all": all_captions, "one": one_caption, "together": together}
