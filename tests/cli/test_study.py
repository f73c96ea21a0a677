import csv

import pytest

from tests.support.commands import fne, refused
from tests.support.studies import write_file, write_study


@pytest.fixture
def study(tmp_path, monkeypatch):
    write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: fne("study", *arguments)


def test_a_study_is_run_shown_and_drawn(study, tmp_path):
    result = study("run", "studies/small.yaml")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "studies/small: 15 training runs were run; show them with `fne study show studies/small.yaml`\n"
    )
    assert "2 hypotheses, recorded in studies/small" in result.stderr
    outputs = ["--html", "page.html", "--figure", "figure.svg", "--cells", "csv"]
    shown = study("show", "studies/small.yaml", *outputs)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("A study\n")
    assert "small: 4 of 4 cells" in shown.stdout
    assert shown.stderr == "15 of 15 training runs are finished\n"
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "figure.svg").read_text(encoding="utf-8").startswith("<svg")
    with (tmp_path / "csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [each["cell"] for each in cells[:2]] == ["small/all/ternary", "small/all/z"]
    assert len(cells) == 5
    assert all(float(each["low"]) <= float(each["rsum"]) <= float(each["high"]) for each in cells)
    assert study("show", "studies/small.yaml", *outputs).exit_code == 0  # its own files are replaced
    again = study("run", "studies/small.yaml")
    assert "0 training runs were run" in again.stdout


def test_a_changed_file_is_refused_and_no_file_of_the_user_is_replaced(study, tmp_path):
    assert study("run", "studies/small.yaml", "--only", "small/all/z").exit_code == 0
    for name, option in (("mine.html", "--html"), ("mine.svg", "--figure"), ("mine.csv", "--cells")):
        (tmp_path / name).write_text("mine")
        assert "this command did not write it" in refused("study", "show", "studies/small.yaml", option, name)
    write_file(tmp_path / "studies/small.yaml", title="Another study")
    for command in ("run", "show"):
        said = refused("study", command, "studies/small.yaml")
        assert "studies/small.yaml was recorded as " in said
        assert said.count("\n") == 1


def test_a_repetition_and_the_official_test_images_have_folders_of_their_own(study, tmp_path):
    for option in (["--seed", "1"], ["--official"]):
        done = study("run", "studies/small.yaml", "--only", "small/all", *option)
        assert done.exit_code == 0, done.output
        assert f"`fne study show studies/small.yaml {' '.join(option)}`" in done.stdout
        assert study("show", "studies/small.yaml", *option).exit_code == 0
    names = sorted(path.name for path in (tmp_path / "studies").iterdir())
    assert names == ["small-official", "small-seed-1", "small.yaml"]


@pytest.mark.usefixtures("study")
def test_a_folder_of_the_user_is_left_alone(tmp_path):
    (tmp_path / "mine/work").mkdir(parents=True)
    said = "Error: mine: holds 'work' and no record of a study; choose another folder with --to\n"
    assert refused("study", "run", "studies/small.yaml", "--to", "mine") == said
    assert (tmp_path / "mine/work").is_dir()
