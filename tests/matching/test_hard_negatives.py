import random

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import BatchHardMiner, TripletMarginMiner
from pytorch_metric_learning.reducers import AvgNonZeroReducer, SumReducer
from torch.nn.functional import normalize

from fne.matching.hard_negatives import (
    AXES,
    MINERS,
    REDUCTIONS,
    LossChoices,
    collapsed_loss,
    mined_loss,
    negatives_of,
)
from fne.matching.settings import Train
from fne.matching.similarities import cosine

MARGIN = 0.2
DEFINED_BY_ONE_NEGATIVE = ["hard_hinge", "semi_hard_hinge", "sum_hinge"]


def true_pairs(size: int) -> torch.Tensor:
    return torch.eye(size, dtype=torch.bool)


def batches(count: int):
    """Batches with planted ties, images that occur twice, two captions per image, and up to nine captions."""
    chance = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        captions = chance.randrange(2, 10)
        images = captions if number % 2 else chance.randrange(1, captions + 1)
        truth = (
            torch.arange(captions)
            if number % 2
            else torch.tensor([each % images for each in range(captions)])[
                torch.randperm(captions, generator=generator)
            ]
        )
        # The image that each row shows; some rows show the same image.
        shown = torch.randint(0, max(2, images), (images,), generator=generator)
        positives = shown[:, None] == shown[truth][None, :]
        scores = torch.randn(images, captions, generator=generator, dtype=torch.float64)
        if number % 3:
            scores = scores.mul(4).round().div(8)
        yield scores, positives, truth, (0.05, 0.2, 1.0)[number % 3]


def selected(name, scores, positives, truth, margin, k=1, hardest="query"):
    """The masks of the negatives that a loss counts, with images and with captions as anchors."""
    mine, _ = MINERS[name]
    return [mine(each, margin, k) for each in negatives_of(scores, positives, truth, hardest)]


def wanted(name: str, true: float, wrong: float, margin: float) -> bool:
    hard, violating = wrong >= true, margin - true + wrong > 0
    return {"hard_hinge": hard, "semi_hard_hinge": violating and not hard, "sum_hinge": violating}[name]


def loops(scores, positives, truth):
    """For every anchor: its true score, and the scores of its negatives by their places in the mask."""
    images, captions = (range(each) for each in scores.shape)
    by_image, by_caption = [], []
    for c in captions:
        true, own = float(scores[truth[c], c]), truth[c]
        by_image.append((true, {(c, k): float(scores[own, k]) for k in captions if not positives[own, k]}))
        by_caption.append((true, {(i, c): float(scores[i, c]) for i in images if not positives[i, c]}))
    return by_image, by_caption


@pytest.mark.parametrize("name", DEFINED_BY_ONE_NEGATIVE)
def test_masks_are_those_of_plain_loops(name):
    for scores, positives, truth, margin in batches(200):
        masks = selected(name, scores, positives, truth, margin)
        for mask, anchors in zip(masks, loops(scores, positives, truth), strict=True):
            expected = {
                place
                for true, negatives in anchors
                for place, wrong in negatives.items()
                if wanted(name, true, wrong, margin)
            }
            assert {tuple(each) for each in mask.nonzero().tolist()} == expected


@pytest.mark.parametrize(
    ("name", "k", "kept"), [("max_hinge", 5, 1), ("top_k_hinge", 1, 1), ("top_k_hinge", 20, 20)]
)
def test_the_k_hardest_are_as_many_as_there_are_and_no_other_negative_scores_higher(name, k, kept):
    for scores, positives, truth, margin in batches(200):
        masks = selected(name, scores, positives, truth, margin, k)
        for mask, anchors in zip(masks, loops(scores, positives, truth), strict=True):
            chosen = {tuple(each) for each in mask.nonzero().tolist()}
            for _, negatives in anchors:
                mine = sorted((wrong for place, wrong in negatives.items() if place in chosen), reverse=True)
                assert mine == sorted(negatives.values(), reverse=True)[:kept]
            assert chosen <= {place for _, negatives in anchors for place in negatives}


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("hardest", AXES)
def test_the_loss_is_that_of_its_masks(name, reduce, hardest):
    choices = LossChoices(hardest=hardest, k=2, reduce=reduce, image_anchors=0.7, caption_anchors=0.1)
    for scores, positives, truth, margin in batches(60):
        masks = selected(name, scores, positives, truth, margin, 2, hardest)
        expected = 0.0
        for mask, image_anchor, weight in zip(masks, (True, False), (0.7, 0.1), strict=True):
            values = []
            for row, column in mask.nonzero().tolist():
                c, wrong = (
                    (row, scores[truth[row], column]) if image_anchor else (column, scores[row, column])
                )
                values.append(max(0.0, float(margin - scores[truth[c], c] + wrong)))
            slots = {
                "sum": 1,
                "mean": max(1, len(values)),
                "mean_violating": max(1, sum(each > 0 for each in values)),
            }
            expected += weight * sum(values) / slots[reduce]
        found = mined_loss(name, choices, scores, positives, truth, margin)
        assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", MINERS)
def test_gradients_are_those_of_finite_differences(name, reduce):
    generator = torch.Generator().manual_seed(7)
    scores = torch.randn(4, 6, generator=generator, dtype=torch.float64).requires_grad_()
    truth = torch.tensor([0, 1, 2, 3, 0, 1])
    positives = torch.arange(4)[:, None] == truth[None, :]
    choices = LossChoices(k=2, reduce=reduce, caption_anchors=0.1)
    assert torch.autograd.gradcheck(
        lambda each: mined_loss(name, choices, each, positives, truth, 0.2), scores
    )


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", MINERS)
def test_nothing_to_mine_is_a_loss_of_zero_with_gradients_of_zero(name, reduce):
    scores = torch.eye(4).requires_grad_()
    loss = mined_loss(name, LossChoices(reduce=reduce), scores, true_pairs(4), torch.arange(4), 0.2)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(scores.grad, torch.zeros(4, 4))


@pytest.mark.parametrize(
    ("name", "choices", "value"),
    [
        ("top_k_hinge", LossChoices(k=1, caption_anchors=0.0), 6.4),  # what the paper calls the maximum
        ("top_k_hinge", LossChoices(k=10, caption_anchors=0.1), 70.4),
        ("top_k_hinge", LossChoices(k=10, reduce="mean_violating", caption_anchors=0.1), 0.11),
        ("max_hinge", LossChoices(), 12.8),
        ("sum_hinge", LossChoices(reduce="mean"), 0.2),
        ("semi_hard_hinge", LossChoices(reduce="mean_violating"), 0.0),
    ],
)
def test_a_collapsed_model_has_a_known_loss(name, choices, value):
    positives, truth = true_pairs(64), torch.arange(64)
    assert collapsed_loss(name, choices, positives, truth, 0.1) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "kind"), [("sum_hinge", "all"), ("hard_hinge", "hard"), ("semi_hard_hinge", "semihard")]
)
def test_triplets_and_means_are_those_of_an_independent_library(name, kind):
    generator = torch.Generator().manual_seed(3)
    labels, margin = torch.arange(6), 0.3
    for _ in range(30):
        images, captions = (normalize(torch.randn(6, 5, generator=generator)) for _ in range(2))
        scores = cosine(images, captions)
        masks = selected(name, scores, true_pairs(6), labels, margin)
        expected = 0.0
        for mask, queries, answers in zip(
            (masks[0], masks[1].T), (images, captions), (captions, images), strict=True
        ):
            distance = CosineSimilarity()
            miner = TripletMarginMiner(margin=margin, type_of_triplets=kind, distance=distance)
            # With the same tensor for both labels, the library strikes the true pairs out.
            triplets = miner(queries, labels, answers, labels.clone())
            assert sorted(zip(triplets[0].tolist(), triplets[2].tolist(), strict=True)) == [
                tuple(each) for each in mask.nonzero().tolist()
            ]
            loss = TripletMarginLoss(margin=margin, distance=distance, reducer=AvgNonZeroReducer())
            if len(triplets[0]):
                expected += loss(queries, labels, triplets, answers, labels.clone()).item()
        choices = LossChoices(reduce="mean_violating")
        found = mined_loss(name, choices, scores, true_pairs(6), labels, margin)
        assert found.item() == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_the_two_ranking_terms_of_the_published_code_are_means_over_the_ten_largest():
    """Two captions per image; 1.5 x caption anchors + 1 x image anchors; NumPy transcription of the formulas."""
    generator = torch.Generator().manual_seed(5)
    images, k, margin = 6, 3, 0.05
    distances = torch.rand(images, 2 * images, generator=generator, dtype=torch.float64)
    truth = torch.arange(2 * images) // 2
    positives = torch.arange(images)[:, None] == truth[None, :]
    by_caption, by_image = [], []
    for c in range(2 * images):
        true = distances[truth[c], c]
        own = [margin + true - distances[i, c] for i in range(images) if i != truth[c]]
        by_caption += sorted((max(0.0, float(each)) for each in own), reverse=True)[:k]
        own = [
            margin + true - distances[truth[c], other]
            for other in range(2 * images)
            if truth[other] != truth[c]
        ]
        by_image += sorted((max(0.0, float(each)) for each in own), reverse=True)[:k]
    expected = 1.5 * sum(by_caption) / len(by_caption) + sum(by_image) / len(by_image)
    choices = LossChoices(k=k, reduce="mean", caption_anchors=1.5)
    found = mined_loss("top_k_hinge", choices, -distances, positives, truth, margin)
    assert found.item() == pytest.approx(expected, rel=1e-12)


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
