"""The history as training leaves it."""

import pytest
from dvclive.live import Live

from fne.core.errors import InputError
from fne.report.curves import learning_curves
from fne.report.history import read_history
from tests.report.runs import write_history


def test_a_history_that_dvclive_wrote_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where dvclive finds no Git repository to look at
    with Live(dir=str(tmp_path), save_dvc_exp=False, dvcyaml=None, report=None) as live:
        for loss, rsum in [(3.0, 100.0), (2.0, 300.0), (1.0, 200.0)]:
            live.log_metric("train/loss", loss)
            live.log_metric("val/rsum", rsum)
            live.next_step()
    history = read_history(tmp_path)
    assert history.series["train/loss"] == {1: 3.0, 2: 2.0, 3: 1.0}
    assert history.best_epoch == 2


def test_the_first_of_equally_good_epochs_is_the_best_as_in_training(tmp_path):
    write_history(tmp_path, {"val/rsum": [10, 30, 30]})
    assert read_history(tmp_path / "history").best_epoch == 2


def test_a_phase_starts_at_the_epoch_where_its_number_first_appears(tmp_path):
    write_history(tmp_path, {"train/phase": [1, 1, 2, 2, 3]})
    assert read_history(tmp_path / "history").phase_starts == {3: 2, 5: 3}


def test_loss_and_rsum_are_drawn_first_and_the_phase_is_not_a_curve(tmp_path):
    names = ["val/rsum", "train/phase", "train/loss", "val/a"]
    write_history(tmp_path, {name: [1, 2] for name in names})
    assert list(read_history(tmp_path / "history").curves) == ["train/loss", "val/rsum", "val/a"]


def test_values_that_are_not_finite_are_left_out(tmp_path):
    write_history(tmp_path, {"train/loss": [1.0, float("nan"), float("inf"), 2.0]})
    assert read_history(tmp_path / "history").series["train/loss"] == {1: 1.0, 4: 2.0}


def test_no_folder_is_an_empty_history(tmp_path):
    assert learning_curves(read_history(tmp_path / "nothing")) == []


def test_a_damaged_table_is_named(tmp_path):
    write_history(tmp_path, {"train/loss": [1.0]})
    (tmp_path / "history/plots/metrics/train/loss.tsv").write_text("step\tloss\n0\tmany\n")
    with pytest.raises(InputError, match=r"loss\.tsv: expected numbers in columns 'step' and 'loss'"):
        read_history(tmp_path / "history")


def test_one_epoch_is_drawn_as_a_dot(tmp_path):
    write_history(tmp_path, {"train/loss": [0.0], "val/rsum": [17.0]})
    loss, rsum = learning_curves(read_history(tmp_path / "history"))
    assert len(loss.dots) == len(rsum.dots) == 1
    assert [tick.label for tick in loss.x_ticks] == ["1"]


def test_the_best_epoch_and_the_phases_are_marked_on_every_curve(tmp_path):
    metrics = {"train/loss": [3, 2, 1, 1], "val/rsum": [1, 2, 3, 2], "train/phase": [1, 1, 2, 2]}
    write_history(tmp_path, metrics)
    for chart in learning_curves(read_history(tmp_path / "history")):
        assert chart.best is not None
        assert chart.best.label == "best: epoch 3"
        assert [phase.label for phase in chart.phases] == ["phase 2"]
