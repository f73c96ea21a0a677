import json

import pytest

from fne.evaluation.baseline import Baseline
from fne.experiments.tables import PaperRow
from fne.report.result_rows import results_table
from tests.support.report import read_run, write_run


def rows_of(folder, paper_row=None, **choices):
    write_run(folder, **choices)
    return {row.name: row for row in results_table(read_run(folder), paper_row)}


def test_every_metric_has_its_interval(tmp_path):
    rows = rows_of(tmp_path)
    intervals = json.loads((tmp_path / "intervals.json").read_text())["test_full"]
    low, high = intervals["text_to_image"]["R@5"].values()
    assert rows["R@5"].cells[1].interval == f"{low:.1f} to {high:.1f} %"
    assert rows["R@5"].cells[1].meter.interval == (low, high)
    low, high = intervals["rsum"].values()
    assert [cell.interval for cell in rows["rsum"].cells] == [f"{low:.1f} to {high:.1f}"]


@pytest.mark.parametrize("recalls", [(1,), (2, 3, 4, 50)])
def test_there_is_a_row_for_each_k(tmp_path, recalls):
    rows = rows_of(tmp_path, recalls=recalls)
    assert list(rows) == [*(f"R@{k}" for k in recalls), "Median rank", "Mean rank", "rsum"]


def test_chance_reaches_100_percent_where_k_covers_the_pool(tmp_path):
    rows = rows_of(tmp_path)
    assert [cell.chance for cell in rows["R@10"].cells] == ["100.0 %", "100.0 %"]
    by_chance = [float(cell.chance.removesuffix(" %")) for k in (1, 5, 10) for cell in rows[f"R@{k}"].cells]
    assert float(rows["rsum"].cells[0].chance) == pytest.approx(sum(by_chance), abs=0.3)


def test_printed_values_are_shown_and_missing_ones_are_left_empty(tmp_path):
    printed = {"image_to_text": {"R@1": 25.0, "median_rank": 5}, "text_to_image": {}}
    paper_row = PaperRow("Table 2", [], printed)
    rows = rows_of(tmp_path, paper_row)
    assert [cell.published for cell in rows["R@1"].cells] == ["25.0 %", ""]
    assert [cell.published for cell in rows["Median rank"].cells] == ["5", ""]


def test_in_a_protocol_with_folds_chance_searches_a_single_fold(tmp_path):
    sentences = [(f"sentence {number}",) for number in range(20)]
    rows = rows_of(tmp_path, sentences=sentences, folds=4)
    assert [cell.chance for cell in rows["R@1"].cells] == ["20.0 %", "20.0 %"]
    assert [cell.chance for cell in rows["Mean rank"].cells] == ["3.0", "3.0"]


def test_the_baseline_is_shown_beside_rsum_and_a_model_below_it_is_marked(tmp_path):
    write_run(tmp_path)
    evaluation = read_run(tmp_path)

    def shown(baseline):
        return results_table(evaluation, None, baseline)[-1].cells[0].baseline

    rsums = (evaluation.rsum + 1, evaluation.rsum - 1)
    high, low = (shown(Baseline(rsum, rsum - 5, rsum + 5)) for rsum in rsums)
    assert high.endswith("; this model is below its baseline")
    assert low.startswith(f"closed form with the same features {evaluation.rsum - 1:.1f} (")
    assert "below" not in low
    reason = shown(Baseline(None, None, None, "too few images"))
    assert reason == "no closed-form baseline: too few images"
