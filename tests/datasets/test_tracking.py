import shutil
import subprocess

import pytest

from fne.datasets.tracking import warn_if_untracked

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "repository"
    (folder / "data/mine").mkdir(parents=True)
    (folder / "data/mine/a.jpg").touch()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.chdir(folder)
    return folder


def warning(root, capsys):
    warn_if_untracked(root, root.parent if root.is_file() else root)
    return capsys.readouterr().err


def test_an_untracked_folder_in_the_repository_is_warned_about(repository, capsys):
    assert warning(repository / "data/mine", capsys) == (
        f"Warning: catalog.root: {repository}/data/mine is tracked neither by Git nor by DVC, so "
        "`dvc exp run --temp` and `--queue` will not find it; "
        f"run `dvc add {repository}/data/mine`, or name one outside the repository\n"
    )


def test_a_folder_in_git_is_fine(repository, capsys):
    subprocess.run(["git", "add", "data/mine/a.jpg"], check=True)
    assert warning(repository / "data/mine", capsys) == ""


def test_the_images_must_be_tracked_and_not_only_the_annotation_file(repository, capsys):
    (repository / "data/mine/é.json").touch()
    subprocess.run(["git", "add", "data/mine/é.json"], check=True)
    warned = warning(repository / "data/mine/é.json", capsys)
    assert warned.startswith(f"Warning: catalog.root: {repository}/data/mine is tracked neither by Git nor ")
    subprocess.run(["git", "add", "data/mine/a.jpg"], check=True)
    assert warning(repository / "data/mine/é.json", capsys) == ""


@pytest.mark.parametrize("added", ["data/mine.dvc", "data.dvc"])
def test_a_folder_added_to_dvc_is_fine(repository, capsys, added):
    (repository / added).touch()
    assert warning(repository / "data/mine", capsys) == ""


@pytest.mark.parametrize("out", ["data/mine", "{data/mine: {cache: false}}", "data"])
def test_the_output_of_a_stage_is_fine(repository, capsys, out):
    (repository / "dvc.yaml").write_text(f"stages:\n  render:\n    cmd: x\n    outs:\n    - {out}\n")
    assert warning(repository / "data/mine", capsys) == ""


@pytest.mark.parametrize("text", ["stages: 7", "[]", "stages: {a: {}, b: 7}", "a: b: c"])
def test_an_odd_dvc_file_is_not_this_functions_business(repository, capsys, text):
    (repository / "dvc.yaml").write_text(text)
    assert warning(repository / "data/mine", capsys).startswith("Warning: ")


def test_a_folder_outside_the_repository_is_fine(repository, tmp_path, capsys):
    assert warning(tmp_path, capsys) == ""


def test_without_git_there_is_no_warning(repository, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert warning(repository / "data/mine", capsys) == ""
