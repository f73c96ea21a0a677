"""Batches in which each anchor has one mined caption and one other image: dual-path networks, second stage.

The first half of a batch's images are anchors, each with one of its captions. The wrong caption of an anchor
is the nearest of some candidates, found in test mode. Its caption's wrong image is one of the other half.
An encoder with start positions reads a candidate from one, as the published code does, not from all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fne.core.device import upload
from fne.core.distributed_layers import Step
from fne.matching.data import PairBatch, Pairs
from fne.matching.model import Matcher
from fne.store.catalog import Captioned

BLOCK = 256  # candidates that are encoded at once
# Raised whenever the same batch gets other mined captions: kept fine-tunings no longer count.
MINING_VERSION = 2


@dataclass(frozen=True)
class AnchorDraw:
    """Draws anchors, other images, and candidates for wrong captions.

    An incomplete batch is left out, unless it is the only one.
    """

    captioned: Sequence[Captioned]
    seed: int
    batch: int  # images, an even number
    candidates: int  # captions to mine from, at most

    def sizes(self) -> list[int]:
        """Return the number of images of each batch."""
        images = len(self.captioned)
        return [min(self.batch, images // 2 * 2)] * max(1, images // self.batch)

    def batches(self, epoch: int) -> list[PairBatch]:
        """Return the batches of an epoch; the view of an image is the epoch, which decides its crop."""
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.captioned))
        captions = [(each, record.id) for record in self.captioned for each in record.caption_ids]
        starts = np.cumsum([0, *self.sizes()])
        return [
            self._batch(generator, epoch, [self.captioned[each] for each in order[start:end]], captions)
            for start, end in pairwise(starts)
        ]

    def _batch(
        self,
        generator: np.random.Generator,
        epoch: int,
        records: Sequence[Captioned],
        captions: Sequence[tuple[str, str]],
    ) -> PairBatch:
        anchors = records[: len(records) // 2]
        own = [each.caption_ids[generator.integers(len(each.captions))] for each in anchors]
        taken = {each.id for each in anchors}
        # As many as there must be to have enough without those of the anchors.
        drawn = min(len(captions), self.candidates + sum(len(each.captions) for each in anchors))
        chosen = [captions[k] for k in generator.choice(len(captions), drawn, replace=False)]
        wrong = [caption for caption, image in chosen if image not in taken][: self.candidates]
        return PairBatch([each.id for each in records], own, [epoch] * len(records), wrong)


@torch.no_grad()
def with_mined_captions(
    batch: PairBatch, rows: Tensor, matcher: Matcher, pairs: Pairs, rectified: bool, step: Step
) -> PairBatch:
    """Return a batch with the candidate that is nearest to each anchor as its wrong caption.

    Args:
        rows: of this process's images (images, features), on the device of the model.
        rectified: whether vectors of length one are those after ReLU.
        step: that of the batch; every process encodes all candidates, and draws the same start positions.
    """

    def unit(outputs: Tensor) -> Tensor:
        return matcher.normalize(outputs.relu() if rectified else outputs)

    def encode(ids: Sequence[str]) -> Tensor:
        words, lengths = pairs.captions(ids)
        whole = Step(step.generator, len(ids), slice(0, len(ids)))
        return unit(matcher.text_encoder(upload(words, matcher.device), lengths, whole))

    was_training = matcher.training
    matcher.eval()
    try:
        anchors = step.processes.gather(unit(matcher.image_head(rows, None)))[: len(batch.caption_ids)]
        starts = range(0, len(batch.candidates), BLOCK)
        captions = torch.cat([encode(batch.candidates[start : start + BLOCK]) for start in starts])
        nearest = matcher.similarity(anchors, captions).argmax(dim=1)
    finally:
        matcher.train(was_training)
    mined = [batch.candidates[position] for position in nearest.tolist()]
    return replace(batch, caption_ids=[*batch.caption_ids, *mined])


def rank_mined(scores: Tensor, margin: float) -> Tensor:
    """Return the ranking loss of a batch, the sum over its anchors divided by the number of its images.

    Of the scores (images, captions), caption i of the first half belongs to anchor i. Caption `half + i` is
    its mined wrong caption, and image `half + i` the wrong image of its own caption.
    """
    half = len(scores) // 2
    true = scores.diagonal()[:half]
    wrong_caption, wrong_image = scores.diagonal(half), scores.diagonal(-half)
    violations = (margin - true + wrong_caption).clamp(min=0) + (margin - true + wrong_image).clamp(min=0)
    return violations.sum() / len(scores)
