"""The table of results."""

import json

import pytest

from fne.report.results import Printed, results_table
from tests.report.runs import read_run, write_run


def rows_of(folder, printed=None, **choices):
    write_run(folder, **choices)
    return {row.name: row for row in results_table(read_run(folder), printed)}


def test_every_figure_has_its_interval(tmp_path):
    rows = rows_of(tmp_path)
    intervals = json.loads((tmp_path / "intervals.json").read_text())["test_full"]
    low, high = intervals["text_to_image"]["R@5"]
    assert rows["R@5"].cells[1].interval == f"{low:.1f} to {high:.1f} %"
    assert rows["R@5"].cells[1].meter.interval == (low, high)
    low, high = intervals["rsum"]
    assert [cell.interval for cell in rows["rsum"].cells] == [f"{low:.1f} to {high:.1f}"]


@pytest.mark.parametrize("recalls", [(1,), (2, 3, 4, 50)])
def test_there_is_a_row_for_each_k(tmp_path, recalls):
    rows = rows_of(tmp_path, recalls=recalls)
    assert list(rows) == [*(f"R@{k}" for k in recalls), "Median rank", "Mean rank", "rsum"]


def test_a_list_as_long_as_the_pool_is_found_by_guessing_too(tmp_path):
    assert [cell.chance for cell in rows_of(tmp_path)["R@10"].cells] == ["100.0 %", "100.0 %"]


def test_rsum_by_guessing_is_the_sum_of_the_recalls_by_guessing(tmp_path):
    rows = rows_of(tmp_path)
    guessed = [float(cell.chance.removesuffix(" %")) for k in (1, 5, 10) for cell in rows[f"R@{k}"].cells]
    assert float(rows["rsum"].cells[0].chance) == pytest.approx(sum(guessed), abs=0.3)


def test_what_the_paper_printed_stands_beside_and_nothing_where_it_printed_nothing(tmp_path):
    printed = Printed("Table 2", [], {"image_to_text": {"R@1": 25.0, "median_rank": 5}, "text_to_image": {}})
    rows = rows_of(tmp_path, printed)
    assert [cell.printed for cell in rows["R@1"].cells] == ["25.0 %", ""]
    assert [cell.printed for cell in rows["Median rank"].cells] == ["5", ""]


def test_in_a_protocol_with_folds_guessing_searches_one_fold(tmp_path):
    sentences = [(f"sentence {number}",) for number in range(20)]
    rows = rows_of(tmp_path, sentences=sentences, folds=4)
    assert [cell.chance for cell in rows["R@1"].cells] == ["20.0 %", "20.0 %"]
    assert [cell.chance for cell in rows["Mean rank"].cells] == ["3.0", "3.0"]
