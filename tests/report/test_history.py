"""The history as training leaves it."""

import pytest
from dvclive.live import Live

from fne.core.errors import InputError
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
    assert history.best == 2


def test_the_first_of_equally_good_epochs_is_the_best_as_in_training(tmp_path):
    write_history(tmp_path, {"val/rsum": [10, 30, 30]})
    assert read_history(tmp_path / "history").best == 2


def test_a_phase_spans_the_epochs_with_its_number(tmp_path):
    write_history(tmp_path, {"train/phase": [1, 1, 2, 2, 3]})
    assert read_history(tmp_path / "history").phase_spans == {1: (1, 2), 2: (3, 4), 3: (5, 5)}


def test_loss_and_rsum_are_drawn_first_and_the_phase_is_not_a_curve(tmp_path):
    names = ["val/rsum", "train/phase", "train/loss", "val/a"]
    write_history(tmp_path, {name: [1, 2] for name in names})
    assert list(read_history(tmp_path / "history").curves) == ["train/loss", "val/rsum", "val/a"]


def test_values_that_are_not_finite_are_left_out(tmp_path):
    write_history(tmp_path, {"train/loss": [1.0, float("nan"), float("inf"), 2.0]})
    assert read_history(tmp_path / "history").series["train/loss"] == {1: 1.0, 4: 2.0}


def test_no_folder_is_an_empty_history(tmp_path):
    assert read_history(tmp_path / "nothing").curves == {}


def test_a_damaged_table_is_named(tmp_path):
    write_history(tmp_path, {"train/loss": [1.0]})
    (tmp_path / "history/plots/metrics/train/loss.tsv").write_text("step\tloss\n0\tmany\n")
    with pytest.raises(InputError, match=r"loss\.tsv: expected numbers in columns 'step' and 'loss'"):
        read_history(tmp_path / "history")
