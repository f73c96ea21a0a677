from dataclasses import replace

import pytest

from fne.experiments import comparable
from fne.experiments.presets import load
from fne.experiments.result_tables import (
    OTHERS,
    group_by_experiment,
    list_of_tables,
    results_table,
    starts_table,
)
from fne.experiments.runs import Result
from tests.support.paper_runs import CAFFE, NUMBERS, ranks, run


@pytest.fixture(autouse=True)
def _caffe_weights_are_listed(monkeypatch):
    listed = {"weights": {"backbone": "vgg16", "sha256": [CAFFE]}}
    monkeypatch.setattr(comparable, "load", lambda name, paper="fne": listed.get(name) or load(name, paper))


def scored(value: float) -> Result:
    return Result("test", "full", (value, *NUMBERS[1:]), 1000, 5000)


def of_model(grid, model):
    return [row for row in grid.rows if row[0] == model]


def test_without_runs_the_table_is_as_printed():
    [grid] = results_table("2", [])
    assert len(grid.rows) == 26
    assert of_model(grid, "FNE-SH") == [
        [
            "FNE-SH",
            "paper",
            "25.0",
            "50.8",
            "64.3",
            "5",
            "18.6",
            "44.9",
            "58.0",
            "7",
            "261.6",
            "3.2",
            "",
            "",
            "",
        ]
    ]
    assert of_model(grid, "FV")[0][-1] == "[1]"
    assert grid.notes[0].startswith("The two halves of this row are swapped")


def test_our_seeds_are_below_the_printed_row_with_spread_and_difference():
    runs = [run(seed=0, result=scored(26.0)), run(seed=1, result=scored(28.0))]
    [grid] = results_table("2", runs)
    assert of_model(grid, "FNE-SH")[1:] == [
        ["FNE-SH", "ours, paper", "27.0", "50.8", "64.3", "5.0", "18.6", "44.9", "58.0", "7.0", "263.6", "3.2", "-", "2", "[3][4]"],
        ["FNE-SH", "spread", "1.4", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "1.4", "", "", "", ""],
        ["FNE-SH", "difference", "+2.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+2.0", "", "", "", ""],
    ]  # fmt: skip


def test_runs_following_the_paper_and_the_code_have_separate_rows():
    [grid] = results_table("2", [run(), run(following="code")])
    assert [row[1] for row in of_model(grid, "FNE-SH")] == [
        "paper", "ours, paper", "difference", "ours, code", "difference",
    ]  # fmt: skip


def test_a_run_belongs_to_the_rows_of_all_methods_that_have_its_settings():
    """On Flickr8k, the authors' launcher of FC7-SOE-bl makes it the same as FC7-SOE."""
    [grid] = results_table("2", [run("FC7-SOE", following="code")])
    for model in ("FC7-SOE", "FC7-SOE-bl"):
        assert [row[1] for row in of_model(grid, model)] == ["paper", "ours, code", "difference"]


def test_a_run_with_other_weights_is_listed_in_the_second_table():
    grids = results_table("2", [run(stored=ranks("d", "torchvision"))])
    assert len(of_model(grids[0], "FNE-SH")) == 1
    assert grids[1].title == OTHERS
    assert [row[0] for row in grids[1].rows] == [
        "FNE-SH, torchvision's IMAGENET1K_V1, Flickr8k, 1,000 test images"
    ]


def test_a_method_without_a_printed_row_is_listed_in_the_second_table():
    for name in ("VSE++", "FNE-MOE-abs"):
        assert results_table("2", [run(name)])[1].rows[0][0].startswith(name)


def test_a_run_on_another_data_set_of_the_paper_is_only_in_the_table_of_that_data_set():
    flickr30k = {"train": (29000, 145000), "val": (1014, 5070), "test": (1000, 5000)}
    runs = [run(dataset="flickr30k", counts=flickr30k)]
    assert len(results_table("2", runs)) == 1
    # FNE-SH has the same settings for Flickr8k and Flickr30k.
    assert len(of_model(results_table("3", runs)[0], "FNE-SH")) == 3


def test_the_same_seed_counts_once():
    assert [
        len(group)
        for group in group_by_experiment([run(seed=0), run(seed=0), run(seed=1), run(seed=0, batch=64)])
    ] == [2, 1]


def test_a_run_whose_ranks_are_missing_does_not_represent_its_group():
    missing, present = replace(run(seed=0), ranks=None, counts=None), run(seed=1)
    assert group_by_experiment([missing, present]) == [[present, missing]]
    assert [row[1] for row in of_model(results_table("2", [missing, present])[0], "FNE-SH")] == [
        "paper", "ours, paper", "difference",
    ]  # fmt: skip


def test_table_5_shows_how_many_runs_started_below_the_printed_numbers():
    runs = [run("FNE-MOE-abs", seed=seed, started=seed > 1) for seed in range(5)]
    [grid] = starts_table(runs, "flickr8k")
    assert of_model(grid, "FNE-MOE-abs") == [
        ["FNE-MOE-abs", "paper", "0.0001", "0.05", "yes", "4", "5", "[1]"],
        ["FNE-MOE-abs", "ours, paper", "0.0001", "0.05", "yes", "3", "5", ""],
    ]


def test_runs_of_table_5_on_the_demo_are_listed_in_the_second_table():
    demo = {"train": (12, 60), "val": (4, 20), "test": (6, 30)}
    small = Result("test", "full", NUMBERS, 6, 30)
    runs = [
        run("FC7-MOE-bl", "demo", seed=seed, root="data/demo", counts=demo, result=small, started=started)
        for seed, started in enumerate([True, False, None])
    ]
    grids = starts_table(runs, "demo")
    assert len(grids[0].rows) == 6
    assert grids[1].rows == [
        ["FC7-MOE-bl, weights vgg.pth cccccccc…, demo, 6 test images", "ours, paper", "0.0002", "0.2", "no", "1", "2", ""]
    ]  # fmt: skip


def test_the_legend_says_so_where_a_data_set_is_recognized_by_counts():
    said = "Flickr30k is recognized by its numbers of images: the lists of its splits are not known"
    assert results_table("3", [])[0].legend.endswith(said)
    assert not any("recognized" in results_table(each, [])[0].legend for each in ("2", "two-branch/1"))


def test_the_table_of_another_paper_has_its_printed_rows():
    [grid] = results_table("two-branch/1", [])
    assert grid.title == "two-branch, Table 1: Results on Flickr30K"
    assert [row[1] for row in grid.rows] == ["paper"] * 6
    assert of_model(grid, "VGG19 K=1")[0][2:11] == [
        "19.6", "43.0", "56.2", "-", "15.3", "36.7", "48.7", "-", "219.5",
    ]  # fmt: skip


@pytest.mark.parametrize("address", ["dual-path/coco", "dual-path/5"])
def test_a_table_that_nobody_can_fill_says_why(address):
    [grid] = results_table(address, [])
    assert grid.legend.endswith(
        "no run can stand in a row of this table: the paper's split is a random permutation that cannot be drawn "
        "outside MATLAB"
    )
    assert all(row[-1] for row in grid.rows if row[0].startswith(("Ours", "Instances", "3,000", "10,000")))
    assert any("cannot be drawn outside MATLAB" in note for note in grid.notes)


def test_rows_of_the_unpublished_text_network_say_so():
    [grid] = results_table("dual-path/flickr30k", [])
    notes = {row[0]: row[-1] for row in grid.rows}
    [unpublished] = [number for number, note in enumerate(grid.notes, 1) if "was never published" in note]
    assert notes["Ours (ResNet-152) Stage I"] == f"[{unpublished}]"
    assert notes["Ours (ResNet-152) Stage II"] == f"[{unpublished}]"
    assert notes["Ours (ResNet-50) Stage II"] == ""


def test_the_list_of_tables_has_every_address_and_how_many_rows_can_be_run():
    [grid] = list_of_tables()
    assert [(row[0], *row[3:]) for row in grid.rows] == [
        ("2", "26", "20"),
        ("3", "32", "20"),
        ("4", "30", "20"),
        ("5", "6", "6"),
        ("dual-path/4", "6", "6"),
        ("dual-path/5", "3", "0"),
        ("dual-path/coco", "22", "0"),
        ("dual-path/flickr30k", "23", "4"),
        ("two-branch/1", "6", "4"),
        ("two-branch/2", "6", "4"),
        ("semantic/1", "10", "8"),
        ("semantic/2", "7", "7"),
        ("semantic/3", "6", "2"),
        ("semantic/4", "3", "3"),
    ]
