"""Images and captions as tensors, and the order in which training sees them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.core.files import text_digest
from fne.matching.word_table import pad_captions
from fne.store.arrays import arrays_digest
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, captioned_in, read_captions, require_images, split_artifact
from fne.store.layout import count_views, mean_of_views
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionVectors, read_caption_vectors
from fne.text.tokens import Tokens, read_tokens
from fne.text.word_vectors import WordVectors, read_word_vectors


@dataclass(frozen=True)
class PairBatch:
    """Some images, each with one of its captions.

    Attributes:
        image_ids: the image of each pair.
        caption_ids: the caption of each pair.
        views: the view of each image, counted from 0, where images have several.
    """

    image_ids: list[str]
    caption_ids: list[str]
    views: list[int] | None = None

    def __len__(self) -> int:
        return len(self.image_ids)

    def __str__(self) -> str:
        return f"images {', '.join(self.image_ids)}"

    def part(self, own: slice) -> "PairBatch":
        """Return some of the pairs."""
        return PairBatch(self.image_ids[own], self.caption_ids[own], self.views and self.views[own])

    def positives(self, contrasts: str = "other_images") -> Tensor:
        """Return which pairs (images, captions) must not serve as contrasts.

        Args:
            contrasts: `other_images`, where captions of one image are no contrasts for each other, or
                `other_pairs`, where every other pair is one.
        """
        if contrasts == "other_pairs":
            return torch.eye(len(self), dtype=torch.bool)
        _, numbers = np.unique(self.image_ids, return_inverse=True)
        images = torch.from_numpy(numbers.reshape(-1))
        return images[:, None] == images[None, :]


class Pairs:
    """The captioned images of one split, with their embeddings and words."""

    def __init__(self, captioned: Sequence[Captioned], embeddings: Rows, tokens: Tokens) -> None:
        embeddings.check_ids([record.id for record in captioned])
        tokens.check_ids([caption_id for record in captioned for caption_id in record.caption_ids])
        self.captioned = list(captioned)
        self._embeddings = embeddings
        self._tokens = tokens
        self.views = count_views(embeddings.layers)

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
    def rows(self) -> Rows:
        """The store of the images' embeddings."""
        return self._embeddings

    @property
    def image_ids(self) -> list[str]:
        """The ids of all images."""
        return [record.id for record in self.captioned]

    @property
    def caption_ids(self) -> list[str]:
        """The ids of all captions, image by image."""
        return [caption_id for record in self.captioned for caption_id in record.caption_ids]

    def word_numbers(self) -> list[list[np.ndarray]]:
        """Return the word numbers of each caption of each image."""
        return [[self._tokens.read(each) for each in record.caption_ids] for record in self.captioned]

    def digest(self) -> str:
        """Return the digest of all that training reads of these pairs; other rows of the store are not."""
        words = [[each.tolist() for each in own] for own in self.word_numbers()]
        return text_digest(json.dumps([self._embeddings.digest(self.image_ids), words]))

    def images(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        """Return image embeddings (images, features) in float32.

        Args:
            ids: the images.
            views: which view of each image, counted from 0; without it, the mean of all views.
        """
        rows = self._embeddings.read(ids).astype(np.float32, copy=False)
        if views is None:
            return torch.from_numpy(mean_of_views(rows, self.views))
        return torch.from_numpy(rows.reshape(len(rows), self.views, -1)[np.arange(len(rows)), list(views)])

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return padded words (captions, longest) and lengths (captions)."""
        return pad_captions([self._tokens.read(caption_id) for caption_id in ids])

    def batches(
        self, seed: int, epoch: int, batch: int, captions: str, last_batch: str = "keep"
    ) -> list[PairBatch]:
        """Return the batches of an epoch, in an order that seed and epoch alone decide.

        A last batch of one joins the batch before it, since it would have nothing to
        contrast with. With `last_batch="drop"`, an incomplete last batch is left out.
        """
        generator = np.random.default_rng((seed, epoch))
        drawn = DRAWS[captions](self.captioned, generator)
        starts = batch_starts(len(drawn), batch, last_batch)
        end_of_all = len(drawn) if last_batch == "keep" else min(len(drawn), starts[-1] + batch)
        images, texts = [image for image, _ in drawn], [caption for _, caption in drawn]
        # From the same generator, but last: images with a single view are drawn as they always were.
        views = generator.integers(self.views, size=len(drawn)).tolist() if self.views > 1 else None
        return [
            PairBatch(images[start:end], texts[start:end], views and views[start:end])
            for start, end in zip(starts, [*starts[1:], end_of_all], strict=True)
        ]

    def drawn(self, captions: str) -> int:
        """Return the number of pairs that an epoch draws."""
        return sum(1 if captions == "one" else len(record.captions) for record in self.captioned)


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


def batch_starts(pairs: int, batch: int, last_batch: str = "keep") -> list[int]:
    """Return where the batches of an epoch start; a last one of a single pair joins the one before.

    With `last_batch="drop"`, an incomplete last one is left out, unless it is the only one.

    Example:
        >>> batch_starts(9, batch=4), batch_starts(11, batch=4), batch_starts(11, batch=4, last_batch="drop")
        ([0, 4], [0, 4, 8], [0, 4])
    """
    starts = list(range(0, pairs, batch))
    if last_batch == "drop":
        return starts[: max(1, pairs // batch)]
    return starts[:-1] if len(starts) > 1 and pairs - starts[-1] == 1 else starts


@dataclass(frozen=True)
class MatchingInputs:
    """The pairs for training and validation, the sizes that a model needs for them, and their origin."""

    training: Pairs
    validation: Pairs
    features: int
    words: int
    vectors: WordVectors | None
    lineage: Lineage
    longest: int = 0  # words of a caption, of any split
    caption_vectors: CaptionVectors | None = None  # imported ones, which stand for words

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
        order = text_digest("\n".join(each for each in self.training.rows.ids if each in read))
        return self.read | {"order": order}


def read_inputs(
    embeddings: Path, captions: Path, tokens: Path, vectors: Path | None = None
) -> MatchingInputs:
    """Open the stores of training, and the pretrained word vectors, if there are any.

    Raises:
        InputError: if they do not belong together, or if a split has too few images.
    """
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    imported = read_caption_vectors(vectors) if vectors else None
    pretrained = read_word_vectors(vectors) if vectors and not imported else None
    if imported:
        words, pretrained = imported.tokens(words), imported.words()
    given = [pretrained.artifact] if pretrained else []
    lineage = recorded_lineage(
        rows.artifact, split_artifact(captions, captioned, "train"), catalog, words.artifact, *given
    )
    training, validation = (Pairs(captioned_in(captioned, split), rows, words) for split in ("train", "val"))
    require_images(training, "train", least=2, purpose="training")
    require_images(validation, "val", least=1, purpose="choosing the best epoch")
    size = len(imported.ids) + 1 if imported else words.artifact.settings["words"]
    features = rows.features // training.views
    longest = int(np.diff(words.offsets).max(initial=0))
    return MatchingInputs(training, validation, features, size, pretrained, lineage, longest, imported)


# What happens to an incomplete last batch, and which pairs of a batch are contrasts.
LAST_BATCH = ("drop", "keep")
CONTRASTS = ("other_images", "other_pairs")
DRAWS = {"all": all_captions, "one": one_caption}
