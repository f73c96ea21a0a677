import json

import pytest

from fne.matching.progress import Progress
from fne.matching.validation import Validation


def validation(rsum):
    return Validation({"R@1": 1 / 3}, {"R@1": 0.1}, rsum)


def test_only_a_better_validation_is_the_best():
    progress = Progress()
    assert [progress.note(validation(rsum)) for rsum in (5.0, 4.0, 5.0, 6.0)] == [True, False, False, True]
    assert progress.best_point.validation.rsum == 6.0


def test_a_loss_is_told_per_pair_since_the_validation_before():
    progress = Progress(loss=6.0, pairs=4)
    progress.note(validation(1.0))
    assert progress.points[0].loss == 1.5
    assert (progress.loss, progress.pairs) == (0.0, 0)


def test_a_new_phase_has_its_own_best():
    progress = Progress()
    progress.note(validation(5.0))
    progress.end_epoch()
    progress.end_phase()
    progress.note(validation(3.0))
    assert (progress.best, progress.best_in_phase, progress.phase, progress.epoch) == (0, 3.0, 1, 1)


def test_a_new_phase_does_not_tell_the_loss_of_the_one_before():
    progress = Progress(loss=6.0, pairs=4)
    progress.end_phase()
    assert (progress.loss, progress.pairs) == (0.0, 0)


def test_json_gives_back_every_bit():
    progress = Progress(phase=1, epoch=3, step=7, loss=0.1 + 0.2, pairs=3)
    progress.note(validation(1 / 3))
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def test_without_a_validation_there_is_no_best():
    with pytest.raises(ValueError, match="nothing was validated yet"):
        _ = Progress().best_point
