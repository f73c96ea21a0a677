import pytest
import torch

from fne.core.signals import StoppedError
from fne.training.best_epoch import Phase
from fne.training.checkpoints import Checkpoints
from fne.training.loop import Schedule
from fne.training.run import Job, train_or_load
from tests.support.processes import in_processes
from tests.support.tags_task import TagsTask
from tests.support.training import optimizer

PHASES = [Phase("logistic", 0.05, 3, 3), Phase("logistic", 0.02, 2, 2)]
SCHEDULE = Schedule(PHASES, 0, optimizer(), 2.0, "global", 0)


def trained(scratch, key=None, task=None, **choices):
    task = task or TagsTask()
    done = train_or_load(task, SCHEDULE, key or {"seed": 0}, Job(torch.device("cpu"), scratch, **choices))
    return done, {name: value.clone() for name, value in task.trained.state_dict().items()}


def test_a_finished_training_is_loaded_with_its_weights_and_points(tmp_path, capsys):
    first, weights = trained(tmp_path)
    assert list((tmp_path / "training").iterdir()) == []
    again, loaded = trained(tmp_path)
    assert (again.points, again.kept) == (first.points, first.kept)
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    assert "this training has finished before" in capsys.readouterr().out
    assert list((tmp_path / "training").iterdir()) == []


def test_checkpoints_left_by_a_run_that_was_killed_after_its_end_are_removed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "remove", lambda self: None)
        trained(tmp_path)
    assert [path for path in (tmp_path / "training").rglob("*") if path.is_file()]
    trained(tmp_path)
    assert list((tmp_path / "training").iterdir()) == []


def test_a_stopped_training_is_not_finished(tmp_path):
    with pytest.raises(StoppedError):
        trained(tmp_path, stopping=lambda: True)
    assert not (tmp_path / "trained").exists()
    _, resumed = trained(tmp_path)
    _, expected = trained(tmp_path / "other")
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)


def test_processes_load_what_the_first_one_finished(tmp_path):
    def work(processes):
        first, weights = trained(tmp_path, task=TagsTask(processes=processes), processes=processes)
        again, loaded = trained(tmp_path, task=TagsTask(processes=processes), processes=processes)
        return first.points == again.points and all((loaded[name] == weights[name]).all() for name in weights)

    assert in_processes(2, work) == [True, True]
