"""The trainer, with the matching task and with a second one."""

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE
from fne.core.signals import StoppedError
from fne.evaluation.metrics import recall
from fne.matching import task
from fne.matching import validate as collapse
from fne.matching.model import Shape, new_matcher
from fne.matching.validate import validate
from fne.training.best_epoch import Phase
from fne.training.checkpoints import open_checkpoints
from fne.training.loop import Schedule, Trainer, step_generator
from tests.support.processes import in_processes
from tests.support.tags_task import TagsTask
from tests.support.training import MatchingPhase, MemoryCheckpoints, optimizer, trainer
from tests.support.variants import settings_of

PHASES = (
    MatchingPhase("sum_hinge", 0.2, 0.01, epochs=4, patience=4),
    MatchingPhase("max_hinge", 0.2, 0.005, epochs=3, patience=2),
    MatchingPhase("top_k_hinge", 0.2, 0.001, epochs=2, patience=2),
)
INITIAL = {"initial": "torch"}
SHAPE = Shape("linear", "gru", "cosine", False, 16, 12, 5, 8, text_encoder_settings=INITIAL)
BRANCH = [settings_of(each, hidden=[6]).model_dump() for each in ("mlp", "bow_mlp")]
UNCORRECTED = {"optimizer": optimizer("adam_uncorrected"), "clip_by": "tensor", "validate_every": 5}
SUM = MatchingPhase("sum_hinge", 0.2, 0.01, epochs=30, patience=30)


def outcome(pairs, shape, checkpoints, **choices):
    made, points, log = trainer(pairs, shape, *PHASES, checkpoints=checkpoints, **choices), [], []
    kept = made.train(points.append, log.append)
    return made.task.trained.state_dict(), points, kept, log


@pytest.mark.parametrize(
    ("shape", "choices"),
    [
        (SHAPE, {}),
        (Shape("linear_bias", "bigru", "order", True, 16, 12, 5, 8), UNCORRECTED | {"captions": "all"}),
        (SHAPE, {"keep": "last"}),
        # Dropout and the statistics of batch normalization.
        (Shape("mlp", "bow_mlp", "cosine", False, 16, 12, 5, 8, *BRANCH), {}),
    ],
)
def test_a_run_resumed_at_any_step_ends_with_the_same_bits(pairs, shape, choices):
    saved = MemoryCheckpoints(always=True)
    expected, points, kept, _ = outcome(pairs, shape, saved, **choices)
    assert len(saved.saved) >= 9 * 3
    for checkpoint in saved.saved:
        found, again, kept_again, log = outcome(pairs, shape, MemoryCheckpoints(start=checkpoint), **choices)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert (again, kept_again) == (points, kept)
        assert log[0].startswith("resuming at epoch ")


def test_a_run_that_is_asked_to_stop_saves_a_checkpoint(pairs):
    expected = outcome(pairs, SHAPE, MemoryCheckpoints())[0]
    saved, asked = MemoryCheckpoints(), iter([False] * 6)
    with pytest.raises(StoppedError):
        trainer(pairs, SHAPE, *PHASES, checkpoints=saved).train(stopping=lambda: next(asked, True))
    assert len(saved.saved) == 1
    assert saved.load()[0]["updates"] == 7
    found = outcome(pairs, SHAPE, saved)[0]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_two_processes_draw_the_same_pairs_and_end_with_the_same_weights(pairs):
    def work(processes):
        made, drawn, points = trainer(pairs, SHAPE, *PHASES, processes=processes), [], []
        step = made.step

        def recorded(batch):
            drawn.append((batch.image_ids, batch.caption_ids))
            return step(batch)

        made.step = recorded
        made.train(points.append)
        weights = {name: value.numpy() for name, value in made.task.matcher.state_dict().items()}
        return drawn, [point.loss for point in points], weights

    expected_drawn, expected_losses, expected = work(ALONE)
    first, second = in_processes(2, work)
    for found_drawn, losses, weights in (first, second):
        assert found_drawn == expected_drawn
        assert losses == pytest.approx(expected_losses, rel=1e-3)
        assert all(np.allclose(weights[name], expected[name], atol=1e-3) for name in expected)
    assert all((first[2][name] == second[2][name]).all() for name in expected)


def run(pairs, *phases, shape=SHAPE, **choices):
    made, points = trainer(pairs, shape, *phases, **choices), []
    return made.task.matcher, made.train(points.append), points


def test_training_learns_what_can_be_learned(pairs):
    before = validate(new_matcher(SHAPE, seed=0), pairs)
    made, points = trainer(pairs, SHAPE, SUM), []
    best = made.train(points.append, pytest.fail)
    assert before.main < 450
    assert best.scores.main > 580
    assert points[-1].loss < points[0].loss / 3
    assert made.task.has_started(best)
    assert not made.task.has_collapsed(made.progress.points)


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_a_second_phase_starts_from_the_best_weights_of_the_first(pairs, similarity):
    absolute = similarity == "order"
    shape = Shape("linear", "gru", similarity, absolute, 16, 12, 5, 8, text_encoder_settings=INITIAL)
    first = MatchingPhase("sum_hinge", 0.2, 0.01, epochs=8, patience=8)
    second = MatchingPhase("max_hinge", 0.2, 1e-9, epochs=2, patience=2)
    _, best, points = run(pairs, first, second, shape=shape)
    assert [point.phase for point in points] == [1] * 8 + [2] * 2
    assert [point.epoch for point in points] == list(range(1, 11))
    assert points[8].scores.main == max(point.scores.main for point in points[:8]) == best.scores.main


def test_a_second_phase_can_start_from_the_last_weights_of_the_first(pairs):
    # A rate at which rsum goes up and down.
    first = MatchingPhase("sum_hinge", 0.2, 0.3, epochs=8, patience=8)
    second = MatchingPhase("max_hinge", 0.2, 1e-9, epochs=1, patience=1)
    _, last, points = run(pairs, first, second, keep="last")
    assert max(point.scores.main for point in points) > points[7].scores.main
    assert points[8].scores == points[7].scores
    assert last == points[-1]


def test_the_model_ends_with_the_weights_of_the_best_epoch(pairs):
    matcher, best, points = run(pairs, MatchingPhase("sum_hinge", 0.2, 0.05, epochs=25, patience=25))
    assert best.scores.main == max(point.scores.main for point in points)
    assert validate(matcher, pairs) == best.scores


def test_a_phase_that_does_not_improve_ends_early(pairs):
    _, _, points = run(pairs, MatchingPhase("sum_hinge", 0.2, 1e-9, epochs=30, patience=3))
    assert len(points) == 4


def test_a_loss_that_is_not_finite_stops_naming_step_and_images(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    torch.nn.init.constant_(matcher.image_head.weight, float("nan"))
    message = (
        r"the loss is nan at step 1 of epoch 1, with images (\d\.png, ){3}\d\.png; lower train\.learning_rate"
    )
    with pytest.raises(InputError, match=message):
        trainer(pairs, SHAPE, SUM, matcher=matcher).train()


def test_a_gradient_that_is_not_finite_stops_before_it_reaches_the_weights(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    before = matcher.image_head.weight.clone()
    matcher.image_head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(InputError, match="training stopped: the gradient is (nan|inf) at step 1 of epoch 1"):
        trainer(pairs, SHAPE, SUM, matcher=matcher).train()
    assert torch.equal(matcher.image_head.weight, before)


def test_running_out_of_memory_says_what_to_lower(pairs, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    matcher = new_matcher(SHAPE, seed=0)
    monkeypatch.setattr(matcher, "embed_images", fail)
    with pytest.raises(
        InputError, match="out of memory; lower train.batch, train.embed_dim or train.word_dim"
    ):
        trainer(pairs, SHAPE, SUM, matcher=matcher).train()


def test_a_model_that_maps_everything_to_one_point_is_detected(pairs):
    matcher, log = new_matcher(SHAPE, seed=0), []
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.zero_()  # all scores are 0
    phase = MatchingPhase("max_hinge", 0.2, 1e-12, epochs=4, patience=4)
    made = trainer(pairs, SHAPE, phase, matcher=matcher)
    kept = made.train(log=log.append)
    assert [each[:62] for each in log] == ["training does not start: the loss stays at 0.4 per pair, that "]
    assert not made.task.has_started(kept)
    assert made.task.has_collapsed(made.progress.points)


def test_points_of_the_phase_before_do_not_count_as_a_collapse_of_this_one(pairs, monkeypatch):
    monkeypatch.setattr(collapse, "NEAR", 10.0)
    monkeypatch.setattr(recall, "STARTED", 1000.0)
    log = []
    phases = [MatchingPhase(loss, 0.2, 1e-4, epochs=2, patience=2) for loss in ("sum_hinge", "max_hinge")]
    trainer(pairs, SHAPE, *phases).train(lambda point: log.append(point.phase), log.append)
    assert [str(each)[:23] for each in log] == ["1", "1", "2", "2", "training does not start"]


def test_validation_scores_that_are_nan_stop_training(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    torch.nn.init.constant_(matcher.image_head.weight, float("nan"))
    with pytest.raises(InputError, match=r"in validation, \d+ scores .* are NaN; lower train.learning_rate"):
        validate(matcher, pairs)


def test_validation_can_come_between_the_epochs(pairs):
    phase = MatchingPhase("sum_hinge", 0.2, 0.01, epochs=5, patience=5)
    _, _, points = run(pairs, phase, validate_every=4)  # 3 steps per epoch
    assert [point.epoch for point in points] == [2, 3, 4, 5]
    assert len(run(pairs, phase, validate_every=1000)[2]) == 1


def test_half_precision_trains_too(pairs):
    shape = Shape("linear", "bow", "cosine", False, 16, 12, 5, 8)
    _, best, _ = run(pairs, SUM, shape=shape, precision="bfloat16")
    assert best.scores.main > 500


# The second task: another model, batch, loss and score; dropout; a loss that owns weights.

TAG_PHASES = (
    Phase("logistic", 0.05, epochs=3, patience=3),
    Phase("logistic alone", 0.02, epochs=2, patience=2),
)


def tags_trainer(checkpoints=None, processes=ALONE, phases=None, **choices):
    usual = {"seed": 0, "optimizer": optimizer(), "clip": 2.0, "clip_by": "global", "validate_every": 0}
    schedule = Schedule(phases or TAG_PHASES, **(usual | choices))
    return Trainer(TagsTask(processes=processes), schedule, checkpoints, processes)


def test_another_task_resumes_at_every_step_bit_for_bit():
    saved, points = MemoryCheckpoints(always=True), []
    made = tags_trainer(saved)
    kept = made.train(points.append)
    expected = made.task.trained.state_dict()
    assert len(saved.saved) == 25
    assert not torch.equal(expected["losses.logistic.scale"], torch.ones(3, dtype=torch.float64))
    for checkpoint in saved.saved:
        again, resumed = [], tags_trainer(MemoryCheckpoints(start=checkpoint))
        assert resumed.train(again.append) == kept
        assert again == points
        found = resumed.task.trained.state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("iterations", [1, 7, 10, 1000])
def test_a_phase_ends_after_its_iterations_and_validates_there(iterations):
    """An epoch has five steps; the first phase has three epochs."""
    per_epoch = tags_trainer().task.steps()
    first = replace(TAG_PHASES[0], iterations=iterations)
    expected = min(iterations, first.epochs * per_epoch)

    def trained(checkpoints):
        made, points = tags_trainer(checkpoints, phases=[first]), []
        made.train(points.append)
        return made, points

    saved = MemoryCheckpoints(always=True)
    made, points = trained(saved)
    assert made.progress.updates == len(saved.saved) == expected
    assert [point.epoch for point in points] == list(range(1, -(-expected // per_epoch) + 1))
    for checkpoint in saved.saved:
        again, resumed = trained(MemoryCheckpoints(start=checkpoint))
        assert (again.progress.updates, resumed) == (expected, points)


def test_the_terms_of_an_objective_are_recorded_by_name():
    points = []
    tags_trainer().train(points.append)
    assert all(set(point.terms) == {"logistic", "decay"} for point in points)
    first, last = points[0], points[-1]
    assert first.loss == pytest.approx(first.terms["logistic"] + 0.1 * first.terms["decay"])
    assert last.loss == pytest.approx(last.terms["logistic"])  # the second phase has no decay


def test_a_group_has_its_own_rate_and_a_phase_leaves_weights_out():
    made = tags_trainer()
    assert [group["lr"] for group in made.optimizer.param_groups] == pytest.approx([0.05, 0.005])
    seen = []
    made.train(lambda point: seen.append((point.phase, made.task.logistic.scale.detach().clone())))
    second = [scale for phase, scale in seen if phase == 2]
    assert all(torch.equal(scale, second[0]) for scale in second)
    assert len(made.optimizer.param_groups) == 1


def test_two_processes_train_another_task_as_one_does():
    def work(processes):
        made, points = tags_trainer(processes=processes), []
        made.train(points.append)
        weights = {name: value.numpy() for name, value in made.task.trained.state_dict().items()}
        return weights, [(point.loss, point.terms["logistic"]) for point in points]

    expected, expected_losses = work(ALONE)
    for weights, losses in in_processes(2, work):
        assert all(weights[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-12) for name in expected)
        assert [terms for _, terms in losses] == pytest.approx([terms for _, terms in expected_losses])


def test_a_killed_process_resumes_from_its_files(tmp_path):
    """`kill -9` at three moments; the checkpoints on disk are those of the trainer."""
    made = tags_trainer()
    made.train()
    expected = made.task.trained.state_dict()
    for number in (3, 11, 19):
        scratch = tmp_path / str(number)
        child = os.fork()
        if child == 0:
            try:
                _train_until_killed(scratch, number)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        log = []
        with open_checkpoints(scratch, {}, log.append) as checkpoints:
            resumed = tags_trainer(checkpoints)
            resumed.train(log=log.append)
        assert log[0].startswith("resuming at epoch ")
        found = resumed.task.trained.state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def _train_until_killed(scratch, updates):
    with open_checkpoints(scratch, {}, print) as checkpoints:
        checkpoints.due = lambda: True
        made = tags_trainer(checkpoints)
        step = made.step

        def killed(batch):
            if made.progress.updates == updates:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(10)
            return step(batch)

        made.step = killed
        made.train()


def test_random_numbers_of_a_step_depend_on_seed_and_update_alone():
    def drawn(seed, update):
        return torch.rand(3, generator=step_generator(seed, update)).tolist()

    assert drawn(0, 1) == drawn(0, 1)
    assert len({tuple(drawn(seed, update)) for seed in range(3) for update in range(3)}) == 9


def test_gradients_are_not_clipped_at_norm_zero(pairs):
    made = trainer(pairs, SHAPE, SUM, clip=0.0)
    made.step(made.task.batches(0)[0])
    norm = torch.stack([each.grad.norm() for each in made.parameters]).norm()
    assert norm > 2.0


def test_a_run_without_semi_hard_negatives_is_detected(pairs, monkeypatch):
    monkeypatch.setattr(task, "BATCHES_WITHOUT_NEGATIVE", 5)
    matcher, log = new_matcher(SHAPE, seed=0), []
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.zero_()  # all wrong scores are ties, which are hard
    phase = MatchingPhase("semi_hard_hinge", 0.2, 1e-3, epochs=4, patience=4)
    trainer(pairs, SHAPE, phase, matcher=matcher).train(log=log.append)
    assert [each[:22] for each in log] == ["no semi-hard negative "]


def test_fixed_word_vectors_keep_their_bits(pairs):
    vectors = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    matcher = new_matcher(SHAPE, 0, vectors, fixed=True)
    trainer(pairs, SHAPE, SUM, matcher=matcher).train()
    assert np.array_equal(matcher.text_encoder.words.weight.numpy(), vectors)
    learned = new_matcher(SHAPE, 0, vectors)
    trainer(pairs, SHAPE, SUM, matcher=learned).train()
    assert not np.array_equal(learned.text_encoder.words.weight.detach().numpy(), vectors)
