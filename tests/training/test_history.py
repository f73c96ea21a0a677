import json
import subprocess

import pytest
from dvc.repo import Repo

from fne.core.errors import InputError
from fne.store.history import read_history_seal
from fne.training.best_epoch import Point, Scores
from fne.training.history import write_history


def point(number, terms=None):
    values = {"rsum": 100.0 + number, "image_to_text/R@1": 10.0, "text_to_image/R@1": 5.0}
    return Point(number, 1, 0.5 / number, terms or {}, Scores(values))


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # dvclive looks for a repository around the working folder


def test_the_history_holds_every_point_and_names_its_model(tmp_path):
    write_history(tmp_path / "history", [point(1), point(2), point(3)], "ab" * 32)
    loss = (tmp_path / "history/plots/metrics/train/loss.tsv").read_text().splitlines()
    assert [line.split("\t") for line in loss] == [
        ["step", "loss"], ["0", "0.5"], ["1", "0.25"], ["2", "0.16666666666666666"],
    ]  # fmt: skip
    metrics = json.loads((tmp_path / "history/metrics.json").read_text())
    assert (metrics["train"]["phase"], metrics["val"]["rsum"]) == (1, 103.0)
    assert not (tmp_path / "history/plots/metrics/train/terms").exists()
    seal = read_history_seal(tmp_path / "history")
    assert (seal.model, seal.points) == ("ab" * 32, 3)
    assert seal.artifact.lineage == {"model": {"digest": "ab" * 32, "settings": {}}}


def test_several_terms_have_a_curve_each(tmp_path):
    write_history(tmp_path / "history", [point(1, {"rank": 1.0, "instance": 2.0})], "m")
    names = {path.stem for path in (tmp_path / "history/plots/metrics/train/terms").iterdir()}
    assert names == {"rank", "instance"}


def test_a_history_replaces_the_one_of_another_run_as_a_whole(tmp_path):
    write_history(tmp_path / "history", [point(number) for number in range(1, 41)], "old")
    write_history(tmp_path / "history", [point(1), point(2)], "new")
    rsum = (tmp_path / "history/plots/metrics/val/rsum.tsv").read_text().splitlines()
    assert len(rsum) == 3
    seal = read_history_seal(tmp_path / "history")
    assert (seal.model, seal.points) == ("new", 2)


@pytest.mark.parametrize("change", ["edit", "add", "remove", "seal"])
def test_a_changed_history_is_refused_by_file(tmp_path, change):
    folder = tmp_path / "history"
    write_history(folder, [point(1)], "m")
    file = folder / "plots/metrics/train/loss.tsv"
    if change == "edit":
        file.write_text(file.read_text().replace("0.5", "0.4"))
    elif change == "add":
        file = folder / "plots/metrics/train/other.tsv"
        file.write_text("step\tother\n")
    elif change == "remove":
        file.unlink()
    else:
        file = folder / "history.json"
        file.write_text(file.read_text().replace('"points": 1', '"points": 2'))
    with pytest.raises(InputError, match=f"^{file}: damaged"):
        read_history_seal(folder)


def test_a_repository_without_a_commit_is_refused_by_name(tmp_path):
    subprocess.run(["git", "init", "--quiet"], check=True)
    Repo.init().close()
    with pytest.raises(InputError, match="the history cannot be written: .*; commit something to Git first"):
        write_history(tmp_path / "history", [], "m")
    assert not (tmp_path / "history").exists()
