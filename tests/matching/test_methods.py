"""How models are made: in closed form, and by steps that start from a closed form."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from fne.core.processes import ALONE
from fne.core.settings import put
from fne.core.signals import StoppedError
from fne.matching import methods
from fne.matching.data import MatchingInputs, Pairs
from fne.matching.hard_negatives import LossChoices
from fne.matching.instance_loss import Classes, class_numbers, classifier_bytes, new_instance
from fne.matching.methods import label_images, make_model
from fne.matching.model import Shape, new_matcher
from fne.matching.settings import InstanceLoss, Train
from fne.matching.task import MatchingTask, Objective
from fne.matching.validate import validate
from fne.store.rows import Rows, write_rows
from fne.text.tokens import read_tokens
from fne.training.best_epoch import Phase
from fne.training.checkpoints import open_checkpoints
from fne.training.loop import Schedule, Trainer
from fne.training.optimizers import OPTIMIZERS
from fne.training.row_source import StoreRows
from fne.training.run import Job
from fne.training.settings import SgdNesterov
from tests.support.imports import ROOT
from tests.support.pairs import WORDS
from tests.support.processes import in_processes
from tests.support.refusals import refused
from tests.support.training import matching_data

PARAMS = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")["train"]
FROM_CCA = {
    "start": "cca",
    "image_head": "linear_bias",
    "text_encoder": "tfidf",
    "embed_dim": 2,  # so few leave something to learn
    "rates": "relative",
    "batch": 4,
    "epochs": 3,
    "learning_rate": 0.02,
    "cca.min_count": 1,
    "cca.image_regularization": [3.0],
}


@pytest.fixture
def inputs(pairs) -> MatchingInputs:
    return MatchingInputs(pairs, pairs, pairs.source, WORDS, None, {})


def settings(**changes) -> Train:
    section = dict(PARAMS)
    for key, value in (FROM_CCA | changes).items():
        put(section, key, value)
    return Train.model_validate(section)


def job(scratch, **choices) -> Job:
    return Job(torch.device("cpu"), scratch, **choices)


def weights(matcher):
    return {name: value.clone() for name, value in matcher.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("method", ["cca", "ridge"])
def test_training_starts_exactly_at_the_closed_form(inputs, tmp_path, method):
    changes = {"ridge.min_count": 1}
    chosen = settings(method=method, **{f"{method}.dim": 2}, **changes)
    closed, done, _ = make_model(chosen, inputs, job(tmp_path))
    by_steps = settings(start=method, epochs=1, **changes)
    assert equal(weights(methods.start_matcher(by_steps, inputs, job(tmp_path))), weights(closed))
    _, trained, _ = make_model(by_steps, inputs, job(tmp_path))
    first = trained.points[0]
    assert (first.epoch, first.loss, first.scores) == (0, 0.0, done.kept.scores)
    assert first.scores == validate(closed, inputs.validation)


def test_steps_that_do_not_improve_the_closed_form_leave_it_as_it_is(inputs, tmp_path):
    closed, *_ = make_model(settings(method="cca", **{"cca.dim": 2}), inputs, job(tmp_path))
    found, done, _ = make_model(settings(learning_rate=1e-12, patience=1), inputs, job(tmp_path))
    assert done.kept.epoch == 0
    assert equal(weights(found), weights(closed))


def test_training_improves_the_closed_form_and_keeps_the_best(inputs, tmp_path):
    by_steps = settings(start="ridge", epochs=20, patience=20, learning_rate=0.05, **{"ridge.min_count": 1})
    done = make_model(by_steps, inputs, job(tmp_path)).done
    assert [point.epoch for point in done.points] == list(range(21))
    assert done.points[-1].loss < done.points[1].loss
    assert done.kept.scores.main == max(point.scores.main for point in done.points)
    assert done.kept.scores.main > done.points[0].scores.main


@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_killed_training_ends_with_the_same_bits(inputs, tmp_path, after):
    expected, done, _ = make_model(settings(), inputs, job(tmp_path / "undisturbed"))
    asked = iter([False] * (after - 1))
    with pytest.raises(StoppedError):
        make_model(settings(), inputs, job(tmp_path / "s", stopping=lambda: next(asked, True)))
    found, again, _ = make_model(settings(), inputs, job(tmp_path / "s"))
    assert again.points == done.points
    assert equal(weights(found), weights(expected))


def test_two_processes_start_from_one_closed_form_and_end_as_one_process_does(inputs, tmp_path, monkeypatch):
    fitted = []
    align = methods._align
    monkeypatch.setattr(methods, "_align", lambda *arguments: fitted.append(1) or align(*arguments))

    def work(processes):
        folder = tmp_path / f"of {processes.count}"
        start = weights(methods.start_matcher(settings(), inputs, job(folder, processes=processes)))
        found, done, _ = make_model(settings(), inputs, job(folder, processes=processes))
        plain = [{name: value.numpy() for name, value in each.items()} for each in (start, weights(found))]
        return len(fitted), *plain, [point.loss for point in done.points]

    _, start, expected, losses = work(ALONE)
    fitted.clear()
    results = in_processes(2, work)
    assert [result[0] for result in results] == [1, 0]  # the first process fits, once
    for _, other_start, found, other_losses in results:
        assert all((start[name] == other_start[name]).all() for name in start)
        assert other_losses == pytest.approx(losses, rel=1e-3)
        assert all(found[name] == pytest.approx(expected[name], abs=1e-3) for name in expected)
    assert all((results[0][2][name] == results[1][2][name]).all() for name in expected)


def test_a_closed_form_is_fitted_once_for_the_same_inputs(inputs, tmp_path, monkeypatch):
    first, *_ = make_model(settings(method="cca"), inputs, job(tmp_path))
    monkeypatch.setattr(methods, "align_pairs", lambda *arguments: pytest.fail("fitted again"))
    again, *_ = make_model(settings(method="cca"), inputs, job(tmp_path))
    assert equal(weights(first), weights(again))


@pytest.mark.parametrize(
    "changes",
    [{"method": "cca"}, {"method": "steps"}, {"start": "random"}, {"start": "auto", "text_encoder": "bow"}],
)
def test_rows_that_training_does_not_read_do_not_train_again(inputs, tmp_path, monkeypatch, changes):
    chosen = settings(**changes)
    first, *_ = make_model(chosen, inputs, job(tmp_path))
    rows, captioned = inputs.rows.store, inputs.training.captioned
    values = rows.read(rows.ids)

    def with_rows(ids, values) -> MatchingInputs:
        write_rows(tmp_path / "more", "embeddings", rows.layers, rows.dtype, [(0, ids, values)], {}, {})
        source = StoreRows(Rows.open(tmp_path / "more"))
        pairs = Pairs(captioned, source, read_tokens(tmp_path / "tokens.h5"))
        return MatchingInputs(pairs, pairs, source, WORDS, None, {"embeddings": {"digest": "other"}})

    more = with_rows([*rows.ids, "test.png"], np.concatenate([values, values[:1]]))
    with monkeypatch.context() as patch:
        patch.setattr(methods, "align_pairs", lambda *arguments: pytest.fail("fitted again"))
        patch.setattr(Trainer, "__init__", lambda *arguments, **named: pytest.fail("trained again"))
        again, *_ = make_model(chosen, more, job(tmp_path))
        if chosen.method == "steps" and chosen.starts_from == "random":
            # The order of the store has no effect.
            make_model(chosen, with_rows(rows.ids[::-1], values[::-1]), job(tmp_path))
    assert equal(weights(first), weights(again))
    values[3, 0] += 1 if values[3, 0] < 1 else -1
    other, *_ = make_model(chosen, with_rows(rows.ids, values), job(tmp_path))
    assert not equal(weights(first), weights(other))


def test_a_space_with_fewer_dimensions_than_asked_for_is_reported(inputs, tmp_path, capsys):
    made = make_model(settings(embed_dim=400), inputs, job(tmp_path))
    dimensions = made.matcher.shape.embed_dim
    assert dimensions < 400
    assert f"the joint space has {dimensions} dimensions instead of 400: " in capsys.readouterr().out


def test_word_weights_stay_while_word_vectors_are_trained(inputs, tmp_path):
    start = weights(methods.start_matcher(settings(), inputs, job(tmp_path)))
    found, *_ = make_model(settings(keep="last"), inputs, job(tmp_path))
    name = "text_encoder.words.weight"
    assert torch.equal(weights(found)[name][:, -1], start[name][:, -1])
    assert not torch.equal(weights(found)[name][:, :-1], start[name][:, :-1])


def test_every_image_is_a_class_or_k_means_groups_them(pairs):
    ids = sorted(pairs.image_ids)
    assert label_images(pairs, 0, seed=0) == {each: number for number, each in enumerate(ids)}
    grouped = label_images(pairs, 3, seed=0)
    assert sorted(grouped) == ids
    assert set(grouped.values()) == {0, 1, 2}
    assert grouped == label_images(pairs, 3, seed=0)
    rows, numbers = pairs.source.read(ids).numpy(), np.array([grouped[each] for each in ids])
    centers = np.stack([rows[numbers == each].mean(axis=0) for each in range(3)])
    nearest = np.linalg.norm(rows[:, None] - centers, axis=2).argmin(axis=1)
    assert np.array_equal(nearest, numbers)
    with refused("train.instance.classes is 11, but there are 10 training images"):
        label_images(pairs, 11, seed=0)


def test_training_and_its_checkpoints_take_no_more_memory_than_announced(pairs, tmp_path):
    """A classifier of 40,000 classes, measured in a process of its own."""
    classes, dim = 40_000, 512
    announced = classifier_bytes(classes, dim, batch=4)
    assert announced > 250e6

    def train(count, seen):
        settings = InstanceLoss(classes=0, dropout=0.5, bias=False, bias_rate=2.0)
        matcher = new_matcher(Shape("linear", "bow", "cosine", False, 16, 12, 5, dim), seed=0)
        objective = Objective("sum_hinge", LossChoices(), 0.2, 0.0, 1.0, 1.0)
        sgd = OPTIMIZERS["sgd_nesterov"]

        def optimizer(groups, learning_rate):
            made = sgd(groups, learning_rate, SgdNesterov())
            # With weights, gradients and momentum, however rarely the watcher runs.
            made.register_step_post_hook(lambda *_: seen.append(anonymous_memory()))
            return made

        phases = [Phase("instance", 0.01, 1, 1)]
        schedule = Schedule(phases, 0, optimizer, 0.0, "global", 0, "last")
        loss = new_instance(count, dim, settings, seed=0)
        classes_of = Classes(loss, class_numbers(pairs.image_ids))
        task = MatchingTask(matcher, [objective], matching_data(pairs), classes=classes_of)
        with open_checkpoints(tmp_path, {}, print) as checkpoints:
            trainer = Trainer(task, schedule, checkpoints)
            trainer.train()
            trainer.save()
            checkpoints.remove()

    def work(processes):
        train(10, [])  # what any training takes, such as modules that torch imports with the first optimizer
        before = anonymous_memory()
        seen = [before]
        done = threading.Event()

        def watch():
            while not done.wait(0.002):
                seen.append(anonymous_memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        train(classes, seen)
        done.set()
        watcher.join()
        return max(seen) - before

    [taken] = in_processes(1, work)
    assert 0.7 * announced < taken < 1.1 * announced


def anonymous_memory() -> int:
    """Return what this process has allocated, in bytes: the system may drop pages of files at any time."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return 1024 * sum(int(values[key].split()[0]) for key in ("RssAnon", "VmSwap"))
