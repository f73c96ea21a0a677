import csv

import pytest
from click.testing import CliRunner

from fne.cli import main
from tests.paper.samples import project, run


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Two seeds of one method and one of another, each committed."""
    folder = project(tmp_path_factory.mktemp("table") / "project", "FNE-MOE-abs", "demo")
    run(folder)
    run(folder, "train.seed=1")
    run(folder, "train.embed_dim=32")
    return folder


@pytest.fixture
def table(original, monkeypatch):
    monkeypatch.chdir(original)
    return lambda *arguments: CliRunner().invoke(main, ["table", *arguments])


def test_a_table_is_the_papers_and_below_it_stands_what_is_not(table):
    result = table("2")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Table 2: Results on Flickr8k\n")
    assert "fne max_hinge order 32/128, random weights, demo, 6 test images" in result.stdout


def test_a_table_is_written_to_a_file(table, tmp_path):
    assert table("3", "--format", "csv", "--output", str(tmp_path / "t.csv")).stdout == ""
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert len(rows) == 33
    assert (rows[0]["model"], rows[0]["a@1"]) == ("FV", "25.0")


def test_two_runs_are_compared_and_one_seed_is_not_enough(table):
    result = table("--compare", "HEAD~1", "workspace")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("A: HEAD~1 (1 seed); B: workspace (1 seed)\n")
    assert result.stdout.count("seed variance unknown") == 11
    assert "better" not in result.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "Error: give the number of a table (2, 3, 4 or 5), or --compare A B\n"),
        (
            ["2", "--compare", "HEAD", "HEAD"],
            "Error: give the number of a table (2, 3, 4 or 5), or --compare A B\n",
        ),
        (
            ["--compare", "HEAD~1", "HEAD~2"],
            "Error: 'HEAD~1' and 'HEAD~2' differ in their seeds at most: they are one experiment\n",
        ),
        (
            ["--compare", "HEAD", "nothing"],
            "Error: there is no experiment or revision 'nothing'; there are: workspace\n",
        ),
    ],
)
def test_what_is_wrong_is_told(table, given, message):
    result = table(*given)
    assert result.exit_code == 2
    assert result.stderr.endswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["2", "--model", "FNE-SH"], "--model, --seeds, --following and --yes need --dry, --queue or --run"),
        (["5", "--seeds", "5"], "--model, --seeds, --following and --yes need --dry, --queue or --run"),
        (["--compare", "a", "b", "--dry"], "--dry, --queue and --run need the number of a table"),
        (["--compare", "a", "b", "--run"], "--dry, --queue and --run need the number of a table"),
        (["5", "--run", "--queue"], "give one of --dry, --queue and --run"),
        (["5", "--run", "--dry"], "give one of --dry, --queue and --run"),
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments, message):
    result = CliRunner().invoke(main, ["table", *arguments])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")
