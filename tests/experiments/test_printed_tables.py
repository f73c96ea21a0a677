import csv
from html.parser import HTMLParser

import pytest

from fne.core.errors import InputError
from fne.experiments.presets import load, names
from fne.experiments.printed_tables import (
    FORMATS,
    RECALL_POSITIONS,
    Grid,
    addresses,
    check_address,
    rows,
    starts,
    sum_of_recalls,
    table_title,
)

# The row with the numbers of a run that did not start to learn.
COLLAPSED = "FNE-MOE-bl"
GRID = Grid(
    "Table <1>", ["model", "R@1"], [["a | b", "5.0"], ["<script>", "12.0"]], legend="percent", notes=["first"]
)


def row(number: str, model: str):
    [found] = [each for each in rows(number) if each.model == model]
    return found


def test_the_tables_have_as_many_rows_as_printed():
    assert [len(rows(number)) for number in "234"] == [26, 32, 30]
    assert [sum(each.is_paper_method for each in rows(number)) for number in "234"] == [20, 20, 20]
    assert (len(starts()), len(load("table1")["methods"])) == (6, 10)


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_names_are_unique_and_each_method_of_table_1_has_both_embeddings(number):
    names = [each.model for each in rows(number)]
    assert len(set(names)) == len(names)
    expected = [f"{kind}-{method}" for method in load("table1")["methods"] for kind in ("FC7", "FNE")]
    assert sorted(each.model for each in rows(number) if each.is_paper_method) == sorted(expected)


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_recalls_are_percentages_that_do_not_fall_with_k_and_ranks_are_integers(number):
    for each in rows(number):
        assert len(each.numbers) == 8
        for half in (each.numbers[:4], each.numbers[4:]):
            recalls = [recall for recall in half[:3] if recall is not None]
            assert recalls == sorted(recalls)
            assert all(0 <= recall <= 100 for recall in recalls)
            assert half[3] is None or (isinstance(half[3], int) and half[3] >= 1)


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_annotation_is_easier_than_retrieval_except_where_a_footnote_says_swapped(number):
    """Five true captions are found more easily than one true image; FV's halves are swapped in print."""
    swapped = load(f"table{number}")["errata"]["swapped"]
    complete = [each for each in rows(number) if each.numbers[0] is not None and each.numbers[4] is not None]
    wrong_way = [each for each in complete if each.numbers[0] < each.numbers[4]]
    assert [each.model for each in wrong_way] == ["FV"]
    assert swapped in wrong_way[0].notes


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_fne_is_above_fc7_in_every_recall_but_for_the_footnoted_rows(number):
    for each in rows(number):
        if not each.model.startswith("FNE-"):
            continue
        base = row(number, each.model.replace("FNE-", "FC7-"))
        worse = [place for place in RECALL_POSITIONS if each.numbers[place] <= base.numbers[place]]
        if each.model == COLLAPSED:
            assert len(worse) == 6
            assert load(f"table{number}")["errata"]["collapsed"] in each.notes
        elif worse:
            assert (number, each.model, worse) == ("3", "FNE-SH-bl", [0])
            assert load("table3")["errata"]["tie"] in each.notes


def test_fne_ph_equals_fne_sh_on_coco_and_a_footnote_says_so():
    assert row("4", "FNE-PH").numbers == row("4", "FNE-SH").numbers
    assert row("4", "FNE-PH").notes == row("4", "FNE-SH").notes == [load("table4")["errata"]["same"]]


@pytest.mark.parametrize(
    ("number", "model", "numbers"),
    [
        ("2", "FNE-MH", (27.3, 56.8, 69.3, 4, 21.2, 47.1, 59.7, 6)),
        ("2", "FNE-MOE-bl", (0.1, 0.3, 0.3, 2476, 0.1, 0.6, 1.0, 499)),
        ("2", "2WayNet", (43.4, 63.2, None, None, 29.3, 49.7, None, None)),
        ("3", "DAN (ResNet)", (55.0, 81.8, 89.0, 1, 39.4, 69.2, 79.1, 2)),
        ("3", "VSE++(1C)", (31.9, None, 68.0, 4, 23.1, None, 60.7, 6)),
        ("3", "FNE-POE", (37.2, 67.1, 77.9, 2, 28.1, 57.8, 69.1, 4)),
        ("4", "Order++", (53.0, None, 91.9, 1, 42.3, None, 88.1, 2)),
        ("4", "FC7-POE", (45.6, 75.9, 86.6, 2, 35.2, 69.7, 83.1, 2)),
    ],
)
def test_some_cells_are_as_printed(number, model, numbers):
    assert row(number, model).numbers == numbers


def test_the_sum_of_recalls_is_that_of_all_six_or_none():
    assert sum_of_recalls(row("2", "FNE-MH").numbers) == pytest.approx(281.4)
    assert sum_of_recalls(row("2", "FV").numbers) == pytest.approx(300.0)
    assert sum_of_recalls(row("2", "2WayNet").numbers) is None


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
    for number in "234":
        table = load(f"table{number}")
        used = {note for each in rows(number) for note in each.notes}
        assert used == {*table["notes"].values(), *table["errata"].values()}


def test_text_columns_are_aligned():
    assert FORMATS["text"]([GRID]).splitlines() == [
        "Table <1>", "percent", "model      R@1", "a | b      5.0", "<script>  12.0", "[1] first",
    ]  # fmt: skip


def test_markdown_escapes_vertical_bars():
    assert FORMATS["markdown"]([GRID]).splitlines()[2:6] == [
        "| model | R@1 |", "| --- | ---: |", r"| a \| b | 5.0 |", "| <script> | 12.0 |",
    ]  # fmt: skip


def test_csv_has_one_header_and_the_rows_of_all_tables():
    lines = list(csv.reader(FORMATS["csv"]([GRID, GRID]).splitlines()))
    assert lines == [GRID.columns, *GRID.rows, *GRID.rows]


def test_html_has_no_scripts_and_loads_nothing():
    page = FORMATS["html"]([GRID])
    found: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            found.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

    Tags().feed(page)
    assert "script" not in found
    assert found.count("tr") == 3
    assert "&lt;script&gt;" in page


def test_no_cell_of_a_csv_file_is_a_formula():
    rows = [["=cmd|' /C calc'!A0", "-1.5"], ["\t@SUM(1)", "+1.0 to -2.0"]]
    lines = list(csv.reader(FORMATS["csv"]([Grid("t", ["a", "b"], rows)]).splitlines()))
    assert lines[1:] == [["'=cmd|' /C calc'!A0", "-1.5"], ["'\t@SUM(1)", "+1.0 to -2.0"]]


def test_tables_of_other_papers_are_addressed_with_the_paper():
    of_dual_path = [f"dual-path/{name}" for name in ("4", "5", "coco", "flickr30k")]
    assert addresses() == ["2", "3", "4", "5", *of_dual_path, "two-branch/1", "two-branch/2"]
    assert table_title("dual-path/coco") == (
        "dual-path, Table coco: Results on MSCOCO, 1,000 and 5,000 test images"
    )
    assert table_title("two-branch/1") == "two-branch, Table 1: Results on Flickr30K"
    with pytest.raises(InputError) as caught:
        check_address("two-branch/6")
    assert caught.value.message == (
        "there is no table 'two-branch/6' (did you mean 'two-branch/2'?); see `fne table --list`"
    )


@pytest.mark.parametrize("address", ["two-branch/1", "two-branch/2"])
def test_rows_without_a_median_have_presets_and_recalls_that_do_not_fall(address):
    found = rows(address)
    assert [each.method for each in found if each.is_paper_method] == [
        "two-branch/VGG19-K1", "two-branch/ResNet50-K1", "two-branch/VGG19-K10", "two-branch/ResNet50-K10",
    ]  # fmt: skip
    for each in found:
        for half in (each.numbers[:4], each.numbers[4:]):
            assert half[3] is None
            assert list(half[:3]) == sorted(half[:3])
        assert sum_of_recalls(each.numbers) is not None
    assert {each.method for each in found if each.is_paper_method} <= set(names())


@pytest.mark.parametrize("address", ["dual-path/4", "dual-path/5", "dual-path/coco", "dual-path/flickr30k"])
def test_recalls_of_the_dual_path_tables_do_not_fall_and_rows_have_presets(address):
    for each in rows(address):
        for half in (each.numbers[:3], each.numbers[4:7]):
            recalls = [number for number in half if number is not None]
            assert recalls == sorted(recalls), each.model
        assert (each.method in names()) == each.is_paper_method


def test_cells_of_the_dual_path_tables_are_as_printed():
    found = row("dual-path/flickr30k", "Ours (ResNet-50) Stage I")
    assert (found.method, found.numbers) == (
        "dual-path/ResNet50-I",
        (41.2, 69.7, 78.9, 2, 28.6, 56.2, 67.8, 4),
    )
    assert row("dual-path/4", "Only instance loss, Stage I").numbers == (
        39.9, None, 79.1, None, 28.2, None, 67.9, None,
    )  # fmt: skip
    assert row("dual-path/5", "3,000 categories (Stage I)").numbers[::4] == (38.0, 26.1)
    assert row("dual-path/coco", "Ours (VGG-19) Stage I, 5K").numbers == (
        24.5,
        50.1,
        62.1,
        5,
        16.5,
        39.1,
        51.8,
        10,
    )


def test_cells_of_the_two_branch_tables_are_as_printed():
    assert row("two-branch/1", "VGG19 K=1").numbers == (19.6, 43.0, 56.2, None, 15.3, 36.7, 48.7, None)
    assert row("two-branch/2", "ResNet50 K=10").numbers == (5.6, 19.4, 30.1, None, 6.1, 19.3, 30.9, None)
