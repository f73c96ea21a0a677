import json

import pytest
import torch

from fne.core.errors import InputError
from fne.matching import collapse
from fne.matching.history import writing_history
from fne.matching.model import Shape, new_matcher
from fne.matching.phases import Phase
from fne.matching.training import train
from fne.matching.validation import validate
from tests.matching.runs import Kept, schedule

SHAPE = Shape("linear", "gru", "cosine", False, features=16, vocabulary_size=12, word_dim=5, embed_dim=8)
SUM = Phase("sum_hinge", 0.2, 0.01, epochs=30, patience=30)


def run(pairs, *phases, shape=SHAPE, **choices):
    matcher, points = new_matcher(shape, seed=0), []
    made = schedule(*phases, **choices)
    done = train(matcher, made, pairs, pairs, Kept(), points.append, pytest.fail)
    return matcher, done.best, points


def test_training_learns_what_can_be_learnt(pairs):
    before = validate(new_matcher(SHAPE, seed=0), pairs)
    _, best, points = run(pairs, SUM)
    assert before.rsum < 450
    assert best.validation.rsum > 580
    assert points[-1].loss < points[0].loss / 3


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_a_second_phase_starts_from_the_best_weights_of_the_first(pairs, similarity):
    shape = Shape("linear", "gru", similarity, similarity == "order", 16, 12, 5, 8)
    first = Phase("sum_hinge", 0.2, 0.01, epochs=8, patience=8)
    second = Phase("max_hinge", 0.2, 1e-9, epochs=2, patience=2)
    _, best, points = run(pairs, first, second, shape=shape)
    assert [point.phase for point in points] == [1] * 8 + [2] * 2
    assert [point.epoch for point in points] == list(range(1, 11))
    assert (
        points[8].validation.rsum
        == max(point.validation.rsum for point in points[:8])
        == best.validation.rsum
    )


def test_the_model_ends_with_the_weights_of_the_best_epoch(pairs):
    matcher, best, points = run(pairs, Phase("sum_hinge", 0.2, 0.05, epochs=25, patience=25))
    assert best.validation.rsum == max(point.validation.rsum for point in points)
    assert validate(matcher, pairs) == best.validation


def test_a_phase_that_does_not_improve_ends_early(pairs):
    _, _, points = run(pairs, Phase("sum_hinge", 0.2, 1e-9, epochs=30, patience=3))
    assert len(points) == 4


def test_the_same_seed_gives_the_same_weights(pairs):
    first, second = (run(pairs, SUM)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_loss_that_is_not_finite_stops_naming_step_and_images(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    torch.nn.init.constant_(matcher.image_head.weight, float("nan"))
    message = r"the loss is nan at step 1 of epoch 1, with images \d\.png, \d\.png, \d\.png, \d\.png; lower "
    with pytest.raises(InputError, match=message):
        train(matcher, schedule(SUM), pairs, pairs, Kept(), lambda point: None, pytest.fail)


def test_a_gradient_that_is_not_finite_stops_before_it_reaches_the_weights(pairs, monkeypatch):
    matcher = new_matcher(SHAPE, seed=0)
    before = matcher.image_head.weight.clone()
    matcher.image_head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(InputError, match="training stopped: the gradient is (nan|inf) at step 1 of epoch 1"):
        train(matcher, schedule(SUM), pairs, pairs, Kept(), lambda point: None, pytest.fail)
    assert torch.equal(matcher.image_head.weight, before)


def test_running_out_of_memory_says_what_to_lower(pairs, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    matcher = new_matcher(SHAPE, seed=0)
    monkeypatch.setattr(matcher, "embed_images", fail)
    with pytest.raises(InputError) as caught:
        train(matcher, schedule(SUM), pairs, pairs, Kept(), lambda point: None, pytest.fail)
    assert caught.value.message == "out of memory; lower train.batch, train.embed_dim or train.word_dim"


def test_a_model_that_maps_everything_to_one_point_is_told(pairs):
    matcher, said = new_matcher(SHAPE, seed=0), []
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.zero_()  # all scores are 0
    phase = Phase("max_hinge", 0.2, 1e-12, epochs=4, patience=4)
    done = train(matcher, schedule(phase), pairs, pairs, Kept(), lambda point: None, said.append)
    assert [each[:60] for each in said] == ["training does not start: the loss stays at 0.4 a pair, that "]
    assert not done.started
    assert done.summary().endswith("; training did not start")


def test_a_model_that_learns_may_pass_the_loss_of_a_collapsed_one(pairs, monkeypatch):
    monkeypatch.setattr(collapse, "NEAR", 10.0)  # any loss is near
    phases = SUM, Phase("max_hinge", 0.2, 1e-4, epochs=3, patience=3)
    train(
        new_matcher(SHAPE, seed=0), schedule(*phases), pairs, pairs, Kept(), lambda point: None, pytest.fail
    )


def test_points_of_the_phase_before_do_not_tell_that_this_one_does_not_start(pairs, monkeypatch):
    monkeypatch.setattr(collapse, "NEAR", 10.0)
    monkeypatch.setattr(collapse, "STARTED", 1000.0)
    said = []
    phases = [Phase(loss, 0.2, 1e-4, epochs=2, patience=2) for loss in ("sum_hinge", "max_hinge")]
    matcher = new_matcher(SHAPE, seed=0)
    train(
        matcher, schedule(*phases), pairs, pairs, Kept(), lambda point: said.append(point.phase), said.append
    )
    assert [str(each)[:23] for each in said] == ["1", "1", "2", "2", "training does not start"]


def test_a_good_run_has_started(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    done = train(matcher, schedule(SUM), pairs, pairs, Kept(), lambda point: None, pytest.fail)
    assert done.started
    assert done.summary().startswith(f"best epoch {done.best.epoch} (phase 1): validation rsum 5")


def test_validation_scores_that_are_nan_stop_training(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    torch.nn.init.constant_(matcher.image_head.weight, float("nan"))
    with pytest.raises(InputError, match=r"in validation, \d+ scores .* are NaN; lower train.learning_rate"):
        validate(matcher, pairs)


def test_validation_can_come_between_the_epochs(pairs):
    phase = Phase("sum_hinge", 0.2, 0.01, epochs=5, patience=5)
    _, _, points = run(pairs, phase, validate_every=4)  # 3 steps an epoch
    assert [point.epoch for point in points] == [2, 3, 4, 5]
    assert len(run(pairs, phase, validate_every=1000)[2]) == 1


def test_all_captions_can_be_drawn_in_every_epoch(pairs):
    _, best, _ = run(pairs, SUM, captions="all")
    assert best.validation.rsum > 580


def test_half_precision_trains_too(pairs):
    shape = Shape("linear", "bow", "cosine", False, 16, 12, 5, 8)
    _, best, _ = run(pairs, SUM, shape=shape, precision="bfloat16")
    assert best.validation.rsum > 500


def test_the_history_holds_every_epoch(pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # dvclive looks for a repository around the working folder
    with writing_history(tmp_path / "history") as tell:
        matcher = new_matcher(SHAPE, seed=0)
        made = schedule(Phase("sum_hinge", 0.2, 0.01, epochs=3, patience=3))
        train(matcher, made, pairs, pairs, Kept(), tell, pytest.fail)
    loss = (tmp_path / "history/plots/metrics/train/loss.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in loss] == ["step", "0", "1", "2"]
    assert json.loads((tmp_path / "history/metrics.json").read_text())["train"]["phase"] == 1
