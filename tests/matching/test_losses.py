import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import BatchHardMiner
from pytorch_metric_learning.reducers import SumReducer
from torch.nn.functional import normalize

from fne.matching.hard_negatives import AXES, MINERS, LossChoices
from fne.matching.losses import bind
from fne.matching.settings import Train
from fne.matching.similarities import cosine

MARGIN = 0.2


def bound(name, hardest="query", k=1):
    """A loss on square scores whose true pairs are on the diagonal."""
    loss = bind(name, LossChoices(hardest=hardest, k=k))
    return lambda scores, positives, margin: loss(scores, positives, torch.arange(len(scores)), margin)


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


@pytest.mark.parametrize("size", [2, 3, 9])
def test_the_sum_is_that_of_plain_loops(size):
    scores, positives = random_scores(size, seed=size), with_a_further_true_pair(size)
    expected = plain_sum(scores.tolist(), positives.tolist(), MARGIN)
    assert bound("sum_hinge")(scores, positives, MARGIN).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("hardest", AXES)
@pytest.mark.parametrize("size", [2, 3, 9])
def test_the_maximum_is_that_of_plain_loops(hardest, size):
    scores, positives = random_scores(size, seed=size), with_a_further_true_pair(size)
    expected = PLAIN[hardest](scores.tolist(), positives.tolist(), MARGIN, 1)
    found = bound("max_hinge", hardest)(scores, positives, MARGIN)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("hardest", AXES)
@pytest.mark.parametrize("k", [1, 2, 5, 8, 100])
def test_the_worst_few_are_those_of_plain_loops(hardest, k):
    scores, positives = random_scores(9, seed=k), with_a_further_true_pair(9)
    expected = PLAIN[hardest](scores.tolist(), positives.tolist(), MARGIN, k)
    found = bound("top_k_hinge", hardest, k)(scores, positives, MARGIN)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("hardest", AXES)
def test_the_worst_one_is_the_maximum_and_all_of_them_the_sum(hardest):
    scores, positives = random_scores(7, seed=0), true_pairs(7)
    one, all_of_them = (bound("top_k_hinge", hardest, k)(scores, positives, MARGIN).item() for k in (1, 6))
    assert one == pytest.approx(bound("max_hinge", hardest)(scores, positives, MARGIN).item())
    assert all_of_them == pytest.approx(bound("sum_hinge")(scores, positives, MARGIN).item())


def test_a_caption_that_disturbs_two_images_counts_once_as_a_candidate():
    scores = torch.tensor([[0.5, 0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.0, 1.0]])
    query, candidate = (bound("max_hinge", each, 1)(scores, true_pairs(3), MARGIN).item() for each in AXES)
    assert query == pytest.approx(0.7 + 0.7 + 0.2)  # caption 2 for images 0 and 1; an image for caption 2
    assert candidate == pytest.approx(0.7 + 0.2 + 0.2)  # caption 2 for an image; images 0 and 1 for caption 2


@pytest.mark.parametrize("hardest", AXES)
@pytest.mark.parametrize("name", MINERS)
def test_gradients_are_those_of_finite_differences(name, hardest):
    loss, positives = bound(name, hardest, 2), true_pairs(5)
    scores = random_scores(5, seed=7).requires_grad_()
    assert torch.autograd.gradcheck(lambda each: loss(each, positives, MARGIN), scores)


@pytest.mark.parametrize("hardest", AXES)
@pytest.mark.parametrize("name", MINERS)
def test_well_separated_pairs_cost_nothing(name, hardest):
    assert bound(name, hardest, 2)(torch.eye(4), true_pairs(4), MARGIN).item() == 0


@pytest.mark.parametrize("hardest", AXES)
def test_the_max_loss_of_a_collapsed_batch_is_two_margins_per_image(hardest):
    loss = bound("max_hinge", hardest, 1)
    assert loss(torch.ones(8, 8), true_pairs(8), MARGIN).item() == pytest.approx(3.2)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"k": 1, "caption_anchors": 0.0}, 6.4),  # what the two-branch paper calls the maximum
        ({"k": 10, "caption_anchors": 0.1}, 70.4),
        ({"k": 10, "reduce": "mean_violating", "caption_anchors": 0.1}, 0.11),
        ({"k": 10, "reduce": "mean", "caption_anchors": 0.1}, 0.11),
    ],
)
def test_a_collapsed_batch_costs_margins_by_negatives_anchors_and_reduction(choices, expected):
    loss = bind("top_k_hinge", LossChoices(**choices))
    found = loss(torch.zeros(64, 64), true_pairs(64), torch.arange(64), 0.1)
    assert found.item() == pytest.approx(expected)


def test_every_loss_has_the_settings_that_its_choices_need_and_no_others():
    blocks = Train.nested()
    keys = {name: set(blocks[name].model_fields) for name in MINERS if name in blocks}
    assert keys == {"max_hinge": {"hardest"}, "top_k_hinge": {"hardest", "k"}}
    for name in MINERS:
        assert Train(loss=[name]).loss == [name]


@pytest.mark.parametrize(("name", "miner"), [("sum_hinge", None), ("max_hinge", BatchHardMiner)])
def test_losses_are_those_of_an_independent_library(name, miner):
    generator = torch.Generator().manual_seed(3)
    images, captions = (normalize(torch.randn(6, 5, generator=generator)) for _ in range(2))
    reference = TripletMarginLoss(margin=MARGIN, distance=CosineSimilarity(), reducer=SumReducer())
    mine = miner(distance=CosineSimilarity()) if miner else lambda *_: None
    labels = torch.arange(6)
    expected = 0.0
    for queries, answers in ((images, captions), (captions, images)):
        chosen = mine(queries, labels, answers, labels.clone())
        expected += reference(queries, labels, chosen, answers, labels.clone()).item()
    found = bound(name, "query", 1)(cosine(images, captions), true_pairs(6), MARGIN)
    assert found.item() == pytest.approx(expected, rel=1e-5)
