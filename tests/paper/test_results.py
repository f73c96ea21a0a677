from dataclasses import replace

import pytest

from fne.paper import rule
from fne.paper.data import load
from fne.paper.measured import Measured
from fne.paper.results import OTHERS, grouped, results_table, starts_table
from tests.paper.made import CAFFE, NUMBERS, ranks, run


@pytest.fixture(autouse=True)
def known_weights(monkeypatch):
    listed = {"weights": {"backbone": "vgg16", "sha256": [CAFFE]}}
    monkeypatch.setattr(rule, "load", lambda name: listed.get(name) or load(name))


def scored(value: float) -> Measured:
    return Measured("test", "full", (value, *NUMBERS[1:]), 1000, 5000)


def of_model(grid, model):
    return [row for row in grid.rows if row[0] == model]


def test_without_runs_the_table_is_the_printed_one():
    [grid] = results_table(2, [])
    assert len(grid.rows) == 26
    assert of_model(grid, "FNE-SH") == [
        ["FNE-SH", "paper", "25.0", "50.8", "64.3", "5", "18.6", "44.9", "58.0", "7", "261.6", "", ""]
    ]
    assert of_model(grid, "FV")[0][-1] == "[1]"
    assert grid.notes[0].startswith("The two halves of this row are swapped")


def test_our_seeds_stand_below_the_printed_row_with_spread_and_difference():
    runs = [run(seed=0, measured=scored(26.0)), run(seed=1, measured=scored(28.0))]
    [grid] = results_table(2, runs)
    assert of_model(grid, "FNE-SH")[1:] == [
        ["FNE-SH", "ours, paper", "27.0", "50.8", "64.3", "5.0", "18.6", "44.9", "58.0", "7.0", "263.6", "2", ""],
        ["FNE-SH", "spread", "1.4", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "1.4", "", ""],
        ["FNE-SH", "difference", "+2.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+2.0", "", ""],
    ]  # fmt: skip


def test_paper_and_code_get_lines_of_their_own():
    [grid] = results_table(2, [run(), run(following="code")])
    assert [row[1] for row in of_model(grid, "FNE-SH")] == [
        "paper", "ours, paper", "difference", "ours, code", "difference",
    ]  # fmt: skip


def test_a_run_with_other_weights_is_listed_below_and_not_in_the_row():
    grids = results_table(2, [run(stored=ranks("d", "torchvision"))])
    assert len(of_model(grids[0], "FNE-SH")) == 1
    assert grids[1].title == OTHERS
    assert [row[0] for row in grids[1].rows] == [
        "FNE-SH, torchvision's IMAGENET1K_V1, Flickr8k, 1,000 test images"
    ]


def test_a_method_without_a_row_is_listed_below():
    for name in ("VSE++", "FNE-MOE-abs"):
        assert results_table(2, [run(name)])[1].rows[0][0].startswith(name)


def test_a_run_on_another_of_the_papers_data_sets_is_not_in_this_table():
    flickr30k = {"train": (29000, 145000), "val": (1014, 5070), "test": (1000, 5000)}
    runs = [run(dataset="flickr30k", counts=flickr30k)]
    assert len(results_table(2, runs)) == 1
    # Flickr8k's and Flickr30k's FNE-SH have the same settings; its own table has it.
    assert len(of_model(results_table(3, runs)[0], "FNE-SH")) == 3


def test_the_same_seed_counts_once():
    assert [
        len(group) for group in grouped([run(seed=0), run(seed=0), run(seed=1), run(seed=0, batch=64)])
    ] == [2, 1]


def test_a_run_whose_ranks_are_gone_does_not_speak_for_the_seeds_whose_ranks_are_here():
    gone, here = replace(run(seed=0), ranks=None, counts=None), run(seed=1)
    assert grouped([gone, here]) == [[here, gone]]
    assert [row[1] for row in of_model(results_table(2, [gone, here])[0], "FNE-SH")] == [
        "paper", "ours, paper", "difference",
    ]  # fmt: skip


def test_table_5_shows_how_many_started_beside_the_papers():
    runs = [run("FNE-MOE-abs", seed=seed, started=seed > 1) for seed in range(5)]
    [grid] = starts_table(runs, "flickr8k")
    assert of_model(grid, "FNE-MOE-abs") == [
        ["FNE-MOE-abs", "paper", "0.0001", "0.05", "yes", "4", "5", "[1]"],
        ["FNE-MOE-abs", "ours, paper", "0.0001", "0.05", "yes", "3", "5", ""],
    ]


def test_table_5_on_the_demo_has_rows_of_its_own():
    demo = {"train": (12, 60), "val": (4, 20), "test": (6, 30)}
    small = Measured("test", "full", NUMBERS, 6, 30)
    runs = [
        run("FC7-MOE-bl", "demo", seed=seed, root="data/demo", counts=demo, measured=small, started=started)
        for seed, started in enumerate([True, False, None])
    ]
    grids = starts_table(runs, "demo")
    assert len(grids[0].rows) == 6
    assert grids[1].rows == [
        ["FC7-MOE-bl, weights vgg.pth cccccccc…, demo, 6 test images", "ours, paper", "0.0002", "0.2", "no", "1", "2", ""]
    ]  # fmt: skip
