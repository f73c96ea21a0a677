import json
from pathlib import Path

import pytest
import torch

from fne.matching.model import Shape
from fne.training import finished_runs
from fne.training.best_epoch import Point, Scores
from fne.training.finished_runs import (
    Finished,
    finished_training_runs,
    keep_finished,
    load_finished,
    training_key,
)
from tests.support.processes import in_processes
from tests.support.training import MatchingPhase, optimizer, trainer

REFERENCE = Path(__file__).parent / "reference.json"
READ = {"train": "a", "val": "b"}
POINTS = [Point(1, 1, 1 / 3, {}, Scores({"rsum": 1.0})), Point(2, 1, 0.1, {}, Scores({"rsum": 2.0}))]
DONE = Finished(POINTS, POINTS[1], {"model.weight": torch.arange(3.0)})


def key(**changes):
    usual = {"settings": {"margin": [0.2]}, "read": READ, "device": "cpu", "processes": 1}
    return training_key(**(usual | changes))


def test_a_finished_training_comes_back_with_every_bit(tmp_path):
    assert load_finished(tmp_path, key()) is None
    keep_finished(tmp_path, key(), DONE)
    found = load_finished(tmp_path, key())
    assert (found.points, found.kept) == (POINTS, POINTS[1])
    assert torch.equal(found.state["model.weight"], torch.arange(3.0))


@pytest.mark.parametrize(
    "changes",
    [{"settings": {"margin": [0.3]}}, {"read": READ | {"train": "c"}}, {"device": "cuda"}, {"processes": 2}],
)
def test_whatever_decides_the_result_is_part_of_the_key(tmp_path, changes):
    keep_finished(tmp_path, key(), DONE)
    assert load_finished(tmp_path, key(**changes)) is None


def test_another_version_of_the_trainer_trains_again(tmp_path, monkeypatch):
    keep_finished(tmp_path, key(), DONE)
    monkeypatch.setattr(finished_runs, "TRAINER_VERSION", finished_runs.TRAINER_VERSION + 1)
    assert load_finished(tmp_path, key()) is None


def test_a_damaged_one_is_removed_and_trained_again(tmp_path):
    keep_finished(tmp_path, key(), DONE)
    [file] = (tmp_path / "trained").iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert load_finished(tmp_path, key()) is None
    assert not file.exists()


def test_all_processes_get_what_the_first_one_finds(tmp_path):
    keep_finished(tmp_path, key(processes=2), DONE)

    def work(processes):
        found = load_finished(tmp_path if processes.first else tmp_path / "none", key(processes=2), processes)
        return found.points == POINTS and found.state["model.weight"].tolist()

    assert in_processes(2, work) == [[0.0, 1.0, 2.0]] * 2


SHAPES = {
    "gru, cosine, sum": (
        Shape("linear", "gru", "cosine", False, 16, 12, 5, 8, text_encoder_settings={"initial": "torch"}),
        ("sum_hinge",),
        {},
    ),
    "bigru, order, sum then max": (
        Shape("linear_bias", "bigru", "order", True, 16, 12, 5, 8),
        ("sum_hinge", "max_hinge"),
        {"optimizer": optimizer("adam_uncorrected"), "clip_by": "tensor", "captions": "all"},
    ),
    "lstm, cosine, top k": (Shape("linear", "lstm", "cosine", False, 16, 12, 5, 8), ("top_k_hinge",), {}),
    "bag of words, last weights": (
        Shape("linear", "bow", "order_root", False, 16, 12, 5, 8),
        ("sum_hinge",),
        {"keep": "last"},
    ),
}


def reference_run(pairs, name):
    """Losses per epoch, and the length of every tensor at the end."""
    shape, losses, choices = SHAPES[name]
    phases = [MatchingPhase(loss, 0.2, 0.01, epochs=4, patience=4) for loss in losses]
    made, points = trainer(pairs, shape, *phases, **choices), []
    made.train(points.append)
    norms = {key: value.norm().item() for key, value in made.task.matcher.state_dict().items()}
    return {"losses": [point.loss for point in points], "norms": norms}


@pytest.mark.parametrize("name", SHAPES)
def test_reference_runs_train_to_what_this_version_of_the_trainer_did(pairs, name):
    """When this fails for a good reason, raise TRAINER_VERSION: kept training runs no longer count."""
    reference = json.loads(REFERENCE.read_text())
    assert reference["version"] == finished_runs.TRAINER_VERSION
    found, expected = reference_run(pairs, name), reference["runs"][name]
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-4)


def test_kept_training_runs_are_described_and_a_damaged_one_is_reported(tmp_path):
    settings = {"method": "steps", "text_encoder": "gru", "loss": ["sum_hinge"], "seed": 3}
    keep_finished(tmp_path, key(settings=settings), DONE)
    [kept] = finished_training_runs(tmp_path)
    assert kept.summary == "steps, gru, ['sum_hinge'], 3; rsum 2.0"
    [file] = (tmp_path / "trained").iterdir()
    file.write_bytes(b"no tensors")
    assert [each.summary for each in finished_training_runs(tmp_path)] == ["damaged"]
    assert finished_training_runs(tmp_path / "none") == []
