import numpy as np
import pytest
import torch

from fne.evaluation.metrics.recall import has_started
from fne.matching.hard_negatives import LossChoices, mined_loss
from fne.matching.validate import collapse_warning, flat_loss, is_flat, mining_warning
from fne.training.best_epoch import Point, Scores


def points(*losses):
    return [Point(number, 1, loss, {}, Scores({"rsum": 3.0})) for number, loss in enumerate(losses, start=1)]


@pytest.mark.parametrize(
    ("losses", "flat"),
    [((0.1, 0.1001), True), ((0.4, 0.1, 0.099), True), ((0.1,), False), ((0.1, 0.08), False), ((), False)],
)
def test_a_loss_that_stays_at_twice_the_margin_is_flat(losses, flat):
    assert is_flat(points(*losses), 0.1) is flat


@pytest.mark.parametrize(
    ("loss", "choices", "batch", "flat"),
    [
        ("max_hinge", LossChoices(), 128, 0.1),
        ("top_k_hinge", LossChoices(k=10), 128, 1.0),
        ("top_k_hinge", LossChoices(k=10), 8, 0.7),
        ("top_k_hinge", LossChoices(k=1, caption_anchors=0.1), 64, 0.055),
        ("top_k_hinge", LossChoices(k=10, reduce="mean"), 64, 0.1 / 64),
        ("hard_hinge", LossChoices(reduce="mean_violating", caption_anchors=0.1), 64, 0.055 / 64),
    ],
)
def test_the_flat_loss_depends_on_negatives_anchors_and_reduction(loss, choices, batch, flat):
    assert flat_loss(loss, choices, 0.05, [batch, batch]) == pytest.approx(flat)
    scores, positives = torch.ones(batch, batch), torch.eye(batch, dtype=torch.bool)
    found = mined_loss(loss, choices, scores, positives, torch.arange(batch), 0.05)
    assert found.item() / batch == pytest.approx(flat, rel=1e-5)


def test_a_smaller_last_batch_counts_in_the_flat_loss():
    found = flat_loss("top_k_hinge", LossChoices(k=10), 0.05, [16, 16, 4])
    assert found == pytest.approx((2 * 16 * 10 + 4 * 3) * 0.1 / 36)


@pytest.mark.parametrize("loss", ["sum_hinge", "semi_hard_hinge"])
def test_losses_that_do_not_settle_have_no_flat_loss(loss):
    assert flat_loss(loss, LossChoices(), 0.05, [8]) is None


def test_the_warning_about_mining_says_where_the_negatives_are():
    found = mining_warning("semi_hard_hinge")
    assert found.startswith("no semi-hard negative in the last 50 batches: ")
    assert found.endswith("start with train.loss=[sum_hinge,semi_hard_hinge] or raise train.margin")


@pytest.mark.parametrize(
    ("images", "rsum", "started"),
    [(1000, 9.9, False), (1000, 10.1, True), (20, 150.0, False), (20, 400.0, True)],
)
def test_a_start_is_the_papers_bound_or_above_the_chance_of_few_images(images, rsum, started):
    assert has_started(rsum, np.full(images, 5)) is started


def test_the_warning_names_the_loss_and_the_remedy():
    found = collapse_warning("max_hinge", 0.1)
    assert found.startswith("training does not start: the loss stays at 0.1 per pair")
    assert "(train.loss=[sum_hinge,max_hinge]), or try a lower train.learning_rate" in found
