import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.reducers import SumReducer
from torch.nn.functional import normalize

from fne.matching.losses import LOSSES
from fne.ranking.similarities import cosine

MARGIN = 0.2


def plain_sum(scores, positives, margin):
    """Equation 1 of the paper, word for word."""
    total = 0.0
    for i in range(len(scores)):
        for k in range(len(scores)):
            if not positives[i][k]:
                total += max(0.0, margin - scores[i][i] + scores[i][k])  # wrong captions k of image i
                total += max(0.0, margin - scores[k][k] + scores[i][k])  # wrong images i of caption k
    return total


def plain_max(scores, positives, margin):
    """Equation 4 of the paper, word for word."""
    total = 0.0
    size = range(len(scores))
    for i in size:
        total += max([0.0] + [margin - scores[i][i] + scores[i][k] for k in size if not positives[i][k]])
        total += max([0.0] + [margin - scores[i][i] + scores[k][i] for k in size if not positives[k][i]])
    return total


PLAIN = {"sum_hinge": plain_sum, "max_hinge": plain_max}


def random_scores(size: int, seed: int) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [2, 3, 9])
def test_losses_are_those_of_plain_loops(name, size):
    scores = random_scores(size, seed=size)
    positives = torch.eye(size, dtype=torch.bool)
    positives[0, -1] = True  # a further true pair, as when two captions of an image meet in a batch
    expected = PLAIN[name](scores.tolist(), positives.tolist(), MARGIN)
    assert LOSSES[name](scores, positives, MARGIN).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name):
    scores = random_scores(5, seed=7).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda each: LOSSES[name](each, torch.eye(5, dtype=torch.bool), MARGIN), scores
    )


@pytest.mark.parametrize("name", LOSSES)
def test_well_separated_pairs_cost_nothing(name):
    scores = torch.eye(4)
    assert LOSSES[name](scores, torch.eye(4, dtype=torch.bool), MARGIN).item() == 0


def test_a_collapsed_batch_sits_at_two_margins_per_image_under_max():
    assert LOSSES["max_hinge"](
        torch.ones(8, 8), torch.eye(8, dtype=torch.bool), MARGIN
    ).item() == pytest.approx(3.2)


def test_the_sum_is_that_of_an_independent_library():
    generator = torch.Generator().manual_seed(3)
    images, captions = (normalize(torch.randn(6, 5, generator=generator)) for _ in range(2))
    reference = TripletMarginLoss(margin=MARGIN, distance=CosineSimilarity(), reducer=SumReducer())
    labels = torch.arange(6)
    expected = reference(images, labels, ref_emb=captions, ref_labels=labels.clone())
    expected += reference(captions, labels, ref_emb=images, ref_labels=labels.clone())
    found = LOSSES["sum_hinge"](cosine(images, captions), torch.eye(6, dtype=torch.bool), MARGIN)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
