import numpy as np
import pytest

from fne.matching.collapse import has_started, is_flat, warning
from fne.matching.phases import Phase
from fne.matching.progress import Point
from fne.matching.validation import Validation

PHASE = Phase("max_hinge", 0.05, 1e-3, epochs=9, patience=9)


def points(*losses, phases=None):
    phases = phases or [1] * len(losses)
    return [
        Point(number, phase, loss, Validation({}, {}, 3.0))
        for number, (loss, phase) in enumerate(zip(losses, phases, strict=True), start=1)
    ]


@pytest.mark.parametrize(
    ("losses", "flat"),
    [((0.1, 0.1001), True), ((0.4, 0.1, 0.099), True), ((0.1,), False), ((0.1, 0.08), False), ((), False)],
)
def test_a_loss_that_stays_at_twice_the_margin_is_flat(losses, flat):
    assert is_flat(points(*losses), PHASE, contrasts=1) is flat


def test_points_of_the_phase_before_do_not_count():
    assert not is_flat(points(0.1, 0.1, phases=[1, 2]), PHASE, contrasts=1)


def test_more_contrasts_have_a_higher_flat_loss():
    assert is_flat(points(1.0, 1.0), PHASE, contrasts=10)
    assert not is_flat(points(1.0, 1.0), PHASE, contrasts=1)


@pytest.mark.parametrize(("rsum", "started"), [(9.9, False), (10.1, True)])
def test_with_a_thousand_images_the_bound_is_the_papers(rsum, started):
    assert has_started(rsum, np.full(1000, 5)) is started


@pytest.mark.parametrize(("rsum", "started"), [(150.0, False), (400.0, True)])
def test_with_few_images_guessing_does_not_count_as_a_start(rsum, started):
    assert has_started(rsum, np.full(20, 5)) is started


def test_the_warning_names_the_loss_and_the_remedy():
    assert warning(PHASE, contrasts=1) == (
        "training does not start: the loss stays at 0.1 a pair (2 x margin), that of a model that maps everything "
        "to one point. Start with a sum phase (train.loss=[sum_hinge,max_hinge]), or try a lower "
        "train.learning_rate or another train.seed"
    )
