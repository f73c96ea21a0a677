"""The order similarity of a training batch and its gradient."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.timing import compare, print_table, ratio
from benchmarks.training_step import broadcast_order
from fne.metrics.ranks import Similarity
from fne.models.similarities import order

BATCH, DIM, ROUNDS = 128, 1024, 15
BROADCAST, OURS = "one tensor (images, captions, dim)", "ours"


def order_similarity() -> float:
    """Score 128 x 128 pairs of 1,024 dimensions, forward and backward, compared with one large tensor."""
    generator = torch.Generator().manual_seed(0)
    images, captions = (
        normalize(torch.rand(BATCH, DIM, generator=generator)).requires_grad_() for _ in range(2)
    )
    weights = torch.randn(BATCH, BATCH, generator=generator)

    def gradients(similarity: Similarity) -> tuple[Tensor, ...]:
        return torch.autograd.grad(similarity(images, captions), [images, captions], weights)

    torch.testing.assert_close(gradients(order), gradients(broadcast_order), rtol=1e-4, atol=1e-5)
    variants = {BROADCAST: lambda: gradients(broadcast_order), OURS: lambda: gradients(order)}
    seconds = compare(variants, ROUNDS)
    print_table(seconds, BROADCAST, "batches", 1)
    return ratio(seconds, OURS, BROADCAST)
