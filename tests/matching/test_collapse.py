from dataclasses import replace

import numpy as np
import pytest
import torch

from fne.matching.collapse import flat_loss, has_started, is_flat, warning
from fne.matching.losses import bind
from fne.matching.phases import Phase
from fne.matching.progress import Point
from fne.matching.validation import Validation

PHASE = Phase("max_hinge", 0.05, 1e-3, epochs=9, patience=9)


def points(*losses):
    return [Point(number, 1, loss, Validation({}, {}, 3.0)) for number, loss in enumerate(losses, start=1)]


@pytest.mark.parametrize(
    ("losses", "flat"),
    [((0.1, 0.1001), True), ((0.4, 0.1, 0.099), True), ((0.1,), False), ((0.1, 0.08), False), ((), False)],
)
def test_a_loss_that_stays_at_twice_the_margin_is_flat(losses, flat):
    assert is_flat(points(*losses), 0.1) is flat


@pytest.mark.parametrize(
    ("loss", "batch", "flat"),
    [("max_hinge", 128, 0.1), ("top_k_hinge", 128, 1.0), ("top_k_hinge", 8, 0.7), ("sum_hinge", 128, None)],
)
def test_a_collapsed_model_has_as_many_margins_as_contrasts_count(loss, batch, flat):
    phase = replace(PHASE, loss=loss)
    assert flat_loss(phase, batch, top_k=10) == pytest.approx(flat)
    if flat:
        scores, positives = torch.ones(batch, batch), torch.eye(batch, dtype=torch.bool)
        found = bind(loss, "query", 10)(scores, positives, phase.margin).item() / batch
        assert found == pytest.approx(flat, rel=1e-5)


@pytest.mark.parametrize(("rsum", "started"), [(9.9, False), (10.1, True)])
def test_with_a_thousand_images_the_bound_is_the_papers(rsum, started):
    assert has_started(rsum, np.full(1000, 5)) is started


@pytest.mark.parametrize(("rsum", "started"), [(150.0, False), (400.0, True)])
def test_with_few_images_guessing_does_not_count_as_a_start(rsum, started):
    assert has_started(rsum, np.full(20, 5)) is started


def test_the_warning_names_the_loss_and_the_remedy():
    assert warning(PHASE, 0.1) == (
        "training does not start: the loss stays at 0.1 a pair, that of a model that maps everything "
        "to one point. Start with a sum phase (train.loss=[sum_hinge,max_hinge]), or try a lower "
        "train.learning_rate or another train.seed"
    )
