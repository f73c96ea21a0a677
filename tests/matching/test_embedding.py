import itertools

import pytest
import torch

from fne.core.processes import ALONE
from fne.matching.embedding import embed_batch
from fne.matching.losses import LOSSES, bind
from fne.matching.model import Shape, new_matcher
from fne.ranking.similarities import SIMILARITIES
from tests.groups import in_processes


class Exact:
    """The pairs of a data set, in float64."""

    def __init__(self, pairs):
        self.pairs = pairs
        self.captions = pairs.captions

    def images(self, ids):
        return self.pairs.images(ids).double()


def gradients(pairs, shape, loss, batch, processes):
    matcher = new_matcher(shape, seed=0).double()
    images, captions = embed_batch(matcher, Exact(pairs), batch, torch.float32, processes)
    total = loss(matcher.similarity(images, captions), batch.positives(), 0.2)
    total.backward()
    processes.add_gradients(matcher.parameters())
    return total.item(), {name: each.grad.numpy() for name, each in matcher.named_parameters()}


@pytest.mark.parametrize(
    ("similarity", "loss", "encoder", "processes", "captions"),
    [
        *[(*both, "gru", 2, "one") for both in itertools.product(SIMILARITIES, LOSSES)],
        *[("cosine", "sum_hinge", encoder, 2, "one") for encoder in ("bigru", "bow", "lstm")],
        ("order", "top_k_hinge", "gru", 3, "all"),
        ("cosine", "max_hinge", "gru", 6, "one"),  # a batch of 4 in 6 processes
    ],
)
def test_loss_and_gradients_are_those_of_one_process(pairs, similarity, loss, encoder, processes, captions):
    shape = Shape("linear_bias", encoder, similarity, similarity != "cosine", 16, 12, 5, 8)
    bound = bind(loss, "query", 2)
    batch = pairs.batches(0, 0, 4, captions)[0]
    expected_loss, expected = gradients(pairs, shape, bound, batch, ALONE)
    assert expected_loss > 0
    found = in_processes(processes, lambda group: gradients(pairs, shape, bound, batch, group))
    for total, summed in found:
        assert total == pytest.approx(expected_loss, rel=1e-10)
        for name, value in expected.items():
            assert summed[name] == pytest.approx(value, rel=1e-10, abs=1e-10 * abs(value).max())
    for _, summed in found[1:]:
        assert all((summed[name] == found[0][1][name]).all() for name in expected)


def test_half_precision_vectors_are_compared_in_single_precision(pairs):
    matcher = new_matcher(Shape("linear", "bow", "cosine", False, 16, 12, 5, 8), seed=0)
    vectors = embed_batch(matcher, pairs, pairs.batches(0, 0, 4, "one")[0], torch.bfloat16, ALONE)
    assert [each.dtype for each in vectors] == [torch.float32] * 2
