"""The order similarity of a training batch and its gradient."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.timing import Ratio, compare, print_table, ratio
from benchmarks.training_step import broadcast_order
from fne.evaluation.metrics.ranks import Similarity
from fne.matching.similarities import order

BROADCAST, OURS = "one tensor (images, captions, dim)", "ours"


def order_similarity(batch: int = 128, dim: int = 1024, rounds: int = 15) -> Ratio:
    """Score 128 x 128 pairs of 1,024 dimensions, forward and backward, compared with one large tensor."""
    generator = torch.Generator().manual_seed(0)
    images, captions = (
        normalize(torch.rand(batch, dim, generator=generator)).requires_grad_() for _ in range(2)
    )
    weights = torch.randn(batch, batch, generator=generator)

    def gradients(similarity: Similarity) -> tuple[Tensor, ...]:
        return torch.autograd.grad(similarity(images, captions), [images, captions], weights)

    torch.testing.assert_close(gradients(order), gradients(broadcast_order), rtol=1e-4, atol=1e-5)
    variants = {BROADCAST: lambda: gradients(broadcast_order), OURS: lambda: gradients(order)}
    seconds = compare(variants, rounds)
    print_table(seconds, BROADCAST, "batches", 1)
    return ratio(seconds, OURS, BROADCAST)


def tiny(folder: Path) -> None:
    """Run with little data."""
    order_similarity(batch=8, dim=16, rounds=1)
