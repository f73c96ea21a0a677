import json

import pytest

from fne.training.best_epoch import Progress, Scores, expand_phases

VALUES = {"loss": ["sum_hinge"], "margin": [0.2], "learning_rate": [1e-3], "epochs": [4], "patience": [2]}


def test_single_values_are_one_phase():
    phase = {"loss": "sum_hinge", "margin": 0.2, "learning_rate": 1e-3, "epochs": 4, "patience": 2}
    assert expand_phases(VALUES) == [phase]


def test_a_list_makes_phases_and_single_values_serve_them_all():
    phases = expand_phases(VALUES | {"loss": ["sum_hinge", "max_hinge"], "epochs": [3, 5]})
    found = [(phase["loss"], phase["epochs"], phase["margin"]) for phase in phases]
    assert found == [("sum_hinge", 3, 0.2), ("max_hinge", 5, 0.2)]


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="must have one value or equal lengths, but loss has 0"):
        expand_phases(VALUES | {"loss": []})
    with pytest.raises(ValueError, match="equal lengths, but loss has 2, epochs has 3"):
        expand_phases(VALUES | {"loss": ["sum_hinge", "max_hinge"], "epochs": [1, 2, 3]})


def scores(rsum):
    return Scores({"rsum": rsum, "image_to_text/R@1": 1 / 3})


def test_only_a_better_validation_is_the_best():
    progress = Progress()
    with pytest.raises(ValueError, match="nothing was validated yet"):
        _ = progress.best_point
    assert Progress().add_point(scores(-5.0))
    assert [progress.add_point(scores(rsum)) for rsum in (5.0, 4.0, 5.0, 6.0)] == [True, False, False, True]
    assert progress.best_point.scores.main == 6.0


def test_losses_are_recorded_per_item_since_the_validation_before():
    progress = Progress()
    progress.add_step(4.0, {"rank": 2.0}, items=3)
    progress.add_step(2.0, {"rank": 4.0}, items=1)
    progress.add_point(scores(1.0))
    assert (progress.points[0].loss, progress.points[0].terms) == (1.5, {"rank": 1.5})
    assert (progress.loss, progress.terms, progress.items) == (0.0, {}, 0)
    assert (progress.step, progress.updates) == (2, 2)


def test_a_new_phase_has_its_own_best():
    progress = Progress()
    progress.add_point(scores(5.0))
    progress.end_epoch()
    progress.add_step(6.0, {}, items=4)
    progress.end_phase()
    assert (progress.loss, progress.items) == (0.0, 0)
    progress.add_point(scores(3.0))
    assert (progress.best, progress.best_in_phase, progress.phase, progress.epoch) == (0, 3.0, 1, 1)
    assert [point.phase for point in progress.of_phase()] == [2]


def test_json_gives_back_every_bit():
    progress = Progress(phase=1, epoch=3, step=7, loss=0.1 + 0.2, items=3, terms={"rank": 1 / 3})
    progress.add_point(scores(1 / 3))
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress
