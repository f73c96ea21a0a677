import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import BatchHardMiner
from pytorch_metric_learning.reducers import SumReducer
from torch.nn.functional import normalize

from fne.matching.hard_negatives import AXES, MINERS, LossChoices, mined_loss
from fne.matching.settings import Train
from fne.matching.similarities import cosine

MARGIN = 0.2


def bound(name, hardest="query", k=1):
    """A loss on square scores whose true pairs are on the diagonal."""
    choices = LossChoices(hardest=hardest, k=k)
    return lambda scores, positives, margin: mined_loss(
        name, choices, scores, positives, torch.arange(len(scores)), margin
    )


def plain_sum(scores, positives, margin):
    """Equation 1 of the paper, word for word."""
    total = 0.0
    for i in range(len(scores)):
        for k in range(len(scores)):
            if not positives[i][k]:
                total += max(0.0, margin - scores[i][i] + scores[i][k])  # wrong captions k of image i
                total += max(0.0, margin - scores[k][k] + scores[i][k])  # wrong images i of caption k
    return total


def worst(values, k):
    return sum(sorted((max(0.0, value) for value in values), reverse=True)[:k])


def plain_worst_answers(scores, positives, margin, k):
    """Equation 4 of the paper, for the k worst instead of the worst."""
    total = 0.0
    size = range(len(scores))
    for q in size:
        total += worst([margin - scores[q][q] + scores[q][a] for a in size if not positives[q][a]], k)
        total += worst([margin - scores[q][q] + scores[a][q] for a in size if not positives[a][q]], k)
    return total


def plain_worst_queries(scores, positives, margin, k):
    """The paper's published code: the k queries that a wrong answer disturbs most, for each answer."""
    total = 0.0
    size = range(len(scores))
    for a in size:
        total += worst([margin - scores[q][q] + scores[q][a] for q in size if not positives[q][a]], k)
        total += worst([margin - scores[q][q] + scores[a][q] for q in size if not positives[a][q]], k)
    return total


PLAIN = {"query": plain_worst_answers, "candidate": plain_worst_queries}


def random_scores(size: int, seed: int) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def true_pairs(size: int) -> torch.Tensor:
    return torch.eye(size, dtype=torch.bool)


def with_a_further_true_pair(size: int) -> torch.Tensor:
    """As when two captions of an image meet in a batch."""
    positives = true_pairs(size)
    positives[0, -1] = True
    return positives


@pytest.mark.parametrize("hardest", AXES)
@pytest.mark.parametrize("size", [2, 3, 9])
def test_losses_are_those_of_plain_loops(hardest, size):
    scores, positives = random_scores(size, seed=size), with_a_further_true_pair(size)
    given = (scores.tolist(), positives.tolist(), MARGIN)
    expected = {("sum_hinge", 1): plain_sum(*given), ("max_hinge", 1): PLAIN[hardest](*given, 1)}
    expected |= {("top_k_hinge", k): PLAIN[hardest](*given, k) for k in (1, 2, 5, 100)}
    for (name, k), value in expected.items():
        found = bound(name, hardest, k)(scores, positives, MARGIN)
        assert found.item() == pytest.approx(value, rel=1e-12), (name, k)


def test_a_caption_that_disturbs_two_images_counts_once_as_a_candidate():
    scores = torch.tensor([[0.5, 0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.0, 1.0]])
    query, candidate = (bound("max_hinge", each, 1)(scores, true_pairs(3), MARGIN).item() for each in AXES)
    assert query == pytest.approx(0.7 + 0.7 + 0.2)  # caption 2 for images 0 and 1; an image for caption 2
    assert candidate == pytest.approx(0.7 + 0.2 + 0.2)  # caption 2 for an image; images 0 and 1 for caption 2


def test_every_loss_has_the_settings_that_its_choices_need_and_no_others():
    blocks = Train.nested()
    keys = {name: set(blocks[name].model_fields) for name in MINERS if name in blocks}
    assert keys == {"max_hinge": {"hardest"}, "top_k_hinge": {"hardest", "k"}}
    for name in MINERS:
        assert Train(loss=[name]).loss == [name]


def test_the_maximum_is_that_of_an_independent_library():
    generator = torch.Generator().manual_seed(3)
    images, captions = (normalize(torch.randn(6, 5, generator=generator)) for _ in range(2))
    reference = TripletMarginLoss(margin=MARGIN, distance=CosineSimilarity(), reducer=SumReducer())
    mine = BatchHardMiner(distance=CosineSimilarity())
    labels = torch.arange(6)
    expected = 0.0
    for queries, answers in ((images, captions), (captions, images)):
        chosen = mine(queries, labels, answers, labels.clone())
        expected += reference(queries, labels, chosen, answers, labels.clone()).item()
    found = bound("max_hinge")(cosine(images, captions), true_pairs(6), MARGIN)
    assert found.item() == pytest.approx(expected, rel=1e-5)
