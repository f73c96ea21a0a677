"""What stands in `paper/` is what the paper prints."""

import pytest

from fne.paper.data import FOLDER, load
from fne.paper.tables import RECALLS, rows, starts, sum_of_recalls

# The row whose numbers are those of a run that never started.
COLLAPSED = "FNE-MOE-bl"


def row(number: int, model: str):
    [found] = [each for each in rows(number) if each.model == model]
    return found


def test_every_file_is_read():
    assert sorted(path.stem for path in FOLDER.iterdir()) == [
        "datasets", "presets", "table1", "table2", "table3", "table4", "table5", "weights",
    ]  # fmt: skip
    assert all(load(path.stem) for path in FOLDER.iterdir())


def test_the_tables_have_as_many_rows_as_printed():
    assert [len(rows(number)) for number in (2, 3, 4)] == [26, 32, 30]
    assert [sum(each.is_ours_to_run for each in rows(number)) for number in (2, 3, 4)] == [20, 20, 20]
    assert (len(starts()), len(load("table1")["methods"])) == (6, 10)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_names_are_unique_and_each_method_of_table_1_has_both_embeddings(number):
    names = [each.model for each in rows(number)]
    assert len(set(names)) == len(names)
    expected = [f"{kind}-{method}" for method in load("table1")["methods"] for kind in ("FC7", "FNE")]
    assert sorted(each.model for each in rows(number) if each.is_ours_to_run) == sorted(expected)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_recalls_are_percentages_that_do_not_fall_with_k_and_ranks_are_whole(number):
    for each in rows(number):
        assert len(each.numbers) == 8
        for half in (each.numbers[:4], each.numbers[4:]):
            recalls = [recall for recall in half[:3] if recall is not None]
            assert recalls == sorted(recalls)
            assert all(0 <= recall <= 100 for recall in recalls)
            assert half[3] is None or (isinstance(half[3], int) and half[3] >= 1)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_annotation_is_easier_than_retrieval_except_where_a_footnote_says_swapped(number):
    """Five true captions are found more easily than one true image; FV's halves are swapped in print."""
    swapped = load(f"table{number}")["errata"]["swapped"]
    complete = [each for each in rows(number) if each.numbers[0] is not None and each.numbers[4] is not None]
    wrong_way = [each for each in complete if each.numbers[0] < each.numbers[4]]
    assert [each.model for each in wrong_way] == ["FV"]
    assert swapped in wrong_way[0].notes


@pytest.mark.parametrize("number", [2, 3, 4])
def test_fne_is_above_fc7_in_every_recall_but_for_the_footnoted_rows(number):
    for each in rows(number):
        if not each.model.startswith("FNE-"):
            continue
        base = row(number, each.model.replace("FNE-", "FC7-"))
        worse = [place for place in RECALLS if each.numbers[place] <= base.numbers[place]]
        if each.model == COLLAPSED:
            assert len(worse) == 6
            assert load(f"table{number}")["errata"]["collapsed"] in each.notes
        elif worse:
            assert (number, each.model, worse) == (3, "FNE-SH-bl", [0])
            assert load("table3")["errata"]["tie"] in each.notes


def test_fne_ph_equals_fne_sh_on_coco_and_a_footnote_says_so():
    assert row(4, "FNE-PH").numbers == row(4, "FNE-SH").numbers
    assert row(4, "FNE-PH").notes == row(4, "FNE-SH").notes == [load("table4")["errata"]["same"]]


@pytest.mark.parametrize(
    ("number", "model", "numbers"),
    [
        (2, "FNE-MH", (27.3, 56.8, 69.3, 4, 21.2, 47.1, 59.7, 6)),
        (2, "FNE-MOE-bl", (0.1, 0.3, 0.3, 2476, 0.1, 0.6, 1.0, 499)),
        (2, "2WayNet", (43.4, 63.2, None, None, 29.3, 49.7, None, None)),
        (3, "DAN (ResNet)", (55.0, 81.8, 89.0, 1, 39.4, 69.2, 79.1, 2)),
        (3, "VSE++(1C)", (31.9, None, 68.0, 4, 23.1, None, 60.7, 6)),
        (3, "FNE-POE", (37.2, 67.1, 77.9, 2, 28.1, 57.8, 69.1, 4)),
        (4, "Order++", (53.0, None, 91.9, 1, 42.3, None, 88.1, 2)),
        (4, "FC7-POE", (45.6, 75.9, 86.6, 2, 35.2, 69.7, 83.1, 2)),
    ],
)
def test_some_cells_are_as_printed(number, model, numbers):
    assert row(number, model).numbers == numbers


def test_sums_of_recalls():
    assert sum_of_recalls(row(2, "FNE-MH").numbers) == pytest.approx(281.4)
    assert sum_of_recalls(row(2, "FV").numbers) == pytest.approx(300.0)
    assert sum_of_recalls(row(2, "2WayNet").numbers) is None


def test_table_5_is_as_printed():
    assert [(each.model, each.started, each.runs) for each in starts()] == [
        ("FC7-MOE-bl", 5, 5),
        ("FC7-MOE-bl-abs", 0, 5),
        ("FC7-MOE-abs", 0, 5),
        ("FNE-MOE-bl", 0, 5),
        ("FNE-MOE-bl-abs", 0, 5),
        ("FNE-MOE-abs", 4, 5),
    ]


def test_every_footnote_is_used():
    for number in (2, 3, 4):
        table = load(f"table{number}")
        used = {note for each in rows(number) for note in each.notes}
        assert used == {*table["notes"].values(), *table["errata"].values()}
