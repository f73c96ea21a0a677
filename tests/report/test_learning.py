"""Charts of training: phases and the best epoch are marked, and nothing stands in the way."""

from fne.report.charts import BOTTOM, TOP
from fne.report.history import History, read_history
from fne.report.learning import learning_curves
from tests.report.runs import write_history


def test_without_a_history_there_are_no_charts():
    assert learning_curves(History({})) == []


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
        assert [phase.label for phase in chart.phases] == ["phase 1", "phase 2"]


def test_a_single_phase_needs_no_mark(tmp_path):
    write_history(tmp_path, {"train/loss": [2, 1], "train/phase": [1, 1]})
    [chart] = learning_curves(read_history(tmp_path / "history"))
    assert chart.phases == []


def test_many_short_phases_are_marked_by_number_alone(tmp_path):
    write_history(tmp_path, {"train/loss": [1] * 20, "train/phase": [1 + step // 2 for step in range(20)]})
    [chart] = learning_curves(read_history(tmp_path / "history"))
    assert [phase.label for phase in chart.phases] == [str(phase) for phase in range(1, 11)]


def test_the_label_of_the_best_epoch_keeps_away_from_the_curve(tmp_path):
    write_history(tmp_path, {"train/loss": [9, 5, 1], "val/rsum": [1, 5, 9]})
    loss, rsum = learning_curves(read_history(tmp_path / "history"))
    middle = (TOP + BOTTOM) / 2
    assert loss.best_label_at < middle < rsum.best_label_at


def test_a_step_is_called_what_it_is():
    history = History({"val/rsum": {1: 1.0, 2: 3.0}}, unit="validation")
    [chart] = learning_curves(history)
    assert (chart.x_label, chart.best.label) == ("validation", "best: validation 2")
