import numpy as np
import pytest
import torch

from fne.core.processes import ALONE
from fne.core.stopping import StoppedError
from fne.matching.model import Shape, new_matcher
from fne.matching.phases import Phase
from fne.matching.run import Run
from fne.matching.training import train
from tests.groups import in_processes
from tests.matching.runs import Kept, schedule

PHASES = (
    Phase("sum_hinge", 0.2, 0.01, epochs=4, patience=4),
    Phase("max_hinge", 0.2, 0.005, epochs=3, patience=2),
    Phase("top_k_hinge", 0.2, 0.001, epochs=2, patience=2),
)


def outcome(pairs, shape, kept, **choices):
    matcher, points, said = new_matcher(shape, seed=0), [], []
    done = train(matcher, schedule(*PHASES, **choices), pairs, pairs, kept, points.append, said.append)
    return matcher.state_dict(), points, done, said


@pytest.mark.parametrize(
    ("shape", "choices"),
    [
        (Shape("linear", "gru", "cosine", False, 16, 12, 5, 8), {}),
        (
            Shape("linear_bias", "bigru", "order", True, 16, 12, 5, 8),
            {"optimizer": "adam_uncorrected", "clip_by": "tensor", "validate_every": 5, "captions": "all"},
        ),
    ],
)
def test_a_run_that_goes_on_from_any_step_ends_with_the_same_bits(pairs, shape, choices):
    kept = Kept(always=True)
    expected, points, done, _ = outcome(pairs, shape, kept, **choices)
    assert len(kept.saved) >= 9 * 3
    for checkpoint in kept.saved:
        found, again, finished, said = outcome(pairs, shape, Kept(start=checkpoint), **choices)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert (again, finished) == (points, done)
        assert said[0].startswith("going on from epoch ")


def test_a_run_that_is_asked_to_stop_saves_where_it_is(pairs):
    shape = Shape("linear", "gru", "cosine", False, 16, 12, 5, 8)
    expected = outcome(pairs, shape, Kept())[0]
    kept, asked = Kept(), iter([False] * 6)
    with pytest.raises(StoppedError):
        train(
            new_matcher(shape, seed=0), schedule(*PHASES), pairs, pairs, kept,
            lambda point: None, pytest.fail, lambda: next(asked, True),
        )  # fmt: skip
    assert len(kept.saved) == 1
    assert kept.load()[0]["updates"] == 7
    found = outcome(pairs, shape, kept)[0]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_two_processes_draw_the_same_pairs_and_end_with_the_same_weights(pairs, monkeypatch):
    shape = Shape("linear", "gru", "cosine", False, 16, 12, 5, 8)
    drawn = []
    step = Run._step

    def noting(self, batch, *arguments):
        drawn.append((batch.image_ids, batch.caption_ids))
        return step(self, batch, *arguments)

    monkeypatch.setattr(Run, "_step", noting)

    def work(processes):
        drawn.clear()
        matcher, points = new_matcher(shape, seed=0), []
        train(
            matcher, schedule(*PHASES), pairs, pairs, Kept(), points.append, pytest.fail,
            lambda: False, processes,
        )  # fmt: skip
        weights = {name: value.numpy() for name, value in matcher.state_dict().items()}
        return list(drawn), [point.loss for point in points], weights

    expected_drawn, expected_losses, expected = work(ALONE)
    first, second = in_processes(2, work)
    for found_drawn, losses, weights in (first, second):
        assert found_drawn == expected_drawn
        assert losses == pytest.approx(expected_losses, rel=1e-3)
        assert all(np.allclose(weights[name], expected[name], atol=1e-3) for name in expected)
    assert all((first[2][name] == second[2][name]).all() for name in expected)
