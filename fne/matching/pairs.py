"""Images and captions as tensors, and the order in which training sees them."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.store.catalog import Captioned
from fne.store.rows import Rows
from fne.store.tokens import Tokens


class Pairs:
    """The captioned images of one split, with their embeddings and words at hand."""

    def __init__(self, captioned: Sequence[Captioned], embeddings: Rows, tokens: Tokens) -> None:
        embeddings.check_ids([record.id for record in captioned])
        tokens.check_ids([caption_id for record in captioned for caption_id in record.caption_ids])
        self.captioned = list(captioned)
        self._embeddings = embeddings
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self.captioned)

    def images(self, ids: Sequence[str]) -> Tensor:
        """Return image embeddings (images, features) in float32."""
        return torch.from_numpy(self._embeddings.read(ids).astype(np.float32))

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return padded words (captions, longest) and lengths (captions)."""
        rows = [self._tokens.read(caption_id) for caption_id in ids]
        words = torch.zeros((len(rows), max(len(row) for row in rows)), dtype=torch.int64)
        for padded, row in zip(words, rows, strict=True):
            padded[: len(row)] = torch.from_numpy(row.astype(np.int64))
        return words, torch.tensor([len(row) for row in rows])

    def draw(self, seed: int, epoch: int, batch: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the image ids and caption ids of each batch of an epoch.

        Every image comes once, with one of its captions, in an order that is a matter of
        seed and epoch alone. A last batch of one joins the batch before it, since it
        would have nothing to contrast with.
        """
        generator = np.random.default_rng((seed, epoch))
        order = generator.permutation(len(self.captioned))
        chosen = [
            (record.id, record.caption_ids[generator.integers(len(record.captions))])
            for record in (self.captioned[position] for position in order)
        ]
        starts = list(range(0, len(chosen), batch))
        if len(chosen) - starts[-1] == 1 and len(starts) > 1:
            starts.pop()
        for start, end in zip(starts, [*starts[1:], len(chosen)], strict=True):
            image_ids, caption_ids = zip(*chosen[start:end], strict=True)
            yield list(image_ids), list(caption_ids)


def require_images(pairs: Pairs, split: str, least: int, purpose: str) -> None:
    """Refuse a split with too few images, saying what they are needed for."""
    if len(pairs) < least:
        raise InputError(
            f"the catalog has {len(pairs)} captioned images in split '{split}'; {purpose} needs at least "
            f"{least}; see `catalog` in params.yaml"
        )
