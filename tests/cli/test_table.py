import csv

import pytest

from fne.experiments.tables import addresses, is_described
from tests.support.commands import fne, refused


@pytest.fixture
def table(original, monkeypatch):
    monkeypatch.chdir(original)
    return lambda *arguments: fne("table", *arguments)


def test_results_that_are_not_those_of_the_paper_are_shown_below_its_table(table):
    result = table("2")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Table 2: Results on Flickr8k\n")
    assert "fne max_hinge order 32/128, random weights, demo, 6 test images" in result.stdout


def test_the_tables_of_all_papers_are_listed_and_shown_by_their_addresses(table):
    listed = [line.split()[0] for line in table("--list").stdout.splitlines()[2:]]
    others = [
        *(f"dual-path/{name}" for name in ("4", "5", "coco", "flickr30k")),
        "two-branch/1",
        "two-branch/2",
    ]
    assert listed == ["2", "3", "4", "5", *others, *(each for each in addresses() if is_described(each))]
    assert table("two-branch/1").stdout.startswith("two-branch, Table 1: Results on Flickr30K\n")


def test_a_table_is_written_to_a_file(table, tmp_path):
    assert table("3", "--format", "csv", "--output", str(tmp_path / "t.csv")).stdout == ""
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert len(rows) == 33
    assert (rows[0]["model"], rows[0]["a@1"]) == ("FV", "25.0")


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "html"])
def test_an_earlier_table_is_replaced_and_another_file_is_not(table, tmp_path, form):
    written = tmp_path / "table"
    options = "--format", form, "--output", str(written)
    for name in ("3", "5", "2"):
        assert table(name, *options).exit_code == 0
    written.write_text("model,my own numbers\n")
    assert "this command did not write it" in refused("table", "2", *options)
    assert written.read_text() == "model,my own numbers\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["two-branch/6"],
            "there is no table 'two-branch/6' (did you mean 'two-branch/2'?); see `fne table --list`",
        ),
        ([], "give a table (2, 3, 4, 5, …; see --list), claims, or --list"),
        (["2", "--list"], "give a table (2, 3, 4, 5, …; see --list), claims, or --list"),
        (["2", "--model", "FNE-SH"], "--model, --seeds, --following and --own-rows need --dry"),
        (["5", "--seeds", "5"], "--model, --seeds, --following and --own-rows need --dry"),
        (["2", "--own-rows"], "--model, --seeds, --following and --own-rows need --dry"),
        (["--list", "--dry"], "--dry and --dataset need a table"),
        (["claims", "--dataset", "demo"], "--dry and --dataset need a table"),
    ],
)
def test_wrong_arguments_and_options_without_effect_are_refused(arguments, message):
    assert refused("table", *arguments).splitlines()[-1] == f"Error: {message}"


def test_a_table_about_tags_is_shown_and_written_and_cannot_be_filled(table, tmp_path):
    assert table("semantic/2").stdout.startswith("semantic, Table 2: Multi-label classification on MSCOCO\n")
    for _ in range(2):
        written = str(tmp_path / "t.csv")
        assert table("semantic/1", "--format", "csv", "--output", written).exit_code == 0
    message = refused("table", "semantic/1", "--dry")
    assert message.startswith(
        "Error: semantic/1: the networks of its rows were fine-tuned, so no run of this "
    )
    assert "`dvc exp run $(fne preset NAME) pipelines/tagging/dvc.yaml`" in message
