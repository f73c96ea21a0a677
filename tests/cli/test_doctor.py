import grp
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fne.extraction.finished_rows import Scratch
from tests.support.commands import fne, refused
from tests.support.imports import ROOT
from tests.support.projects import change_params, dvc, new_repository

DIGESTS = ["aa" + "0" * 62, "bb" + "0" * 62]


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Scratch:
    """Make a scratch folder with two rows of one kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    scratch = Scratch(tmp_path / ".fne/activations", {"backbone": "vgg16", "crops": "ten"}, features=3)
    fill(scratch)
    return scratch


def fill(scratch: Scratch) -> None:
    for journal, _, missing in scratch.claims(DIGESTS):
        for digest in missing:
            journal.append(digest, np.ones(3))
        journal.unlock()


def doctor(*arguments):
    return fne("doctor", *arguments)


def test_the_machine_and_the_scratch_folder_are_described(scratch):
    lines = doctor().output.splitlines()
    assert lines[0].startswith("python 3.")
    assert lines[1].startswith("GPU: ")
    assert lines[2].startswith("scratch folder .fne: ")
    assert lines[3:] == [f"  {scratch.folder.name}  2 rows, 0.0 MB: vgg16, ten", "no problems found"]


def test_unfinished_training_is_listed_with_its_size(scratch):
    folder = scratch.folder.parent.parent / "training" / "0123456789abcdef"
    folder.mkdir(parents=True)
    assert len(doctor().output.splitlines()) == 5
    (folder / "00000001.safetensors").write_bytes(b"0" * 200_000)
    assert "  unfinished training: 0.2 MB, in .fne/training\n" in doctor().output


def test_rows_are_removed_by_name_or_all(scratch):
    other = Scratch(scratch.folder.parent, {"crops": "five"}, features=3)
    fill(other)
    said = refused("doctor", "--prune", "x")
    assert said.startswith("Error: no rows 'x' in .fne; existing rows: ")
    assert scratch.folder.name in said
    assert doctor("--prune", scratch.folder.name).output == "removed 1 kinds of rows, 0.0 MB\n"
    assert scratch.rows(DIGESTS) == {}
    assert len(doctor().output.splitlines()) == 5
    fill(scratch)
    assert doctor("--prune", "all").output.startswith("removed 2 kinds of rows, ")
    assert not list(Path(".fne").rglob("*.rows")) + list(Path(".fne").rglob("*.made"))
    assert {**scratch.rows(DIGESTS), **other.rows(DIGESTS)} == {}


def test_rows_in_use_are_not_removed(scratch):
    ((journal, _, _),) = scratch.claims(["cc" + "0" * 62])  # locked, and nothing written yet
    said = refused("doctor", "--prune", "all")
    journal.unlock()
    place = f".fne/activations/{scratch.folder.name}"
    assert said.startswith(f"Error: {place}: process {os.getpid()} is using it; wait for the process or stop")
    assert len(scratch.rows(DIGESTS)) == 2


def change(section: str, **keys: object) -> None:
    change_params(Path(), {section: keys})


def test_settings_that_the_machine_does_not_support_are_reported(scratch, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    change("runtime", device="cuda", threads=3, workers=2)
    assert doctor().output.splitlines()[4:] == [
        "runtime.device is cuda, but torch finds no GPU; fix: set it to auto in params.yaml",
        "runtime.threads is 3, but there are 2 cores; fix: reduce it in params.yaml",
    ]


def test_missing_weights_are_reported(scratch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    change("extract", weights="weights/imagenet.yaml")
    none, advice, said = doctor().output.splitlines()[4:]
    assert (none, advice) == ("no problems found", "advice, which nothing depends on:")
    assert said.startswith(
        "  weights/imagenet.yaml: vgg16-397923af.pth is not downloaded yet; fix: dvc repro "
    )
    change("extract", weights="mine.safetensors")
    said = "extract.weights: mine.safetensors: no such file; fix: dvc pull mine.safetensors"
    assert doctor().output.splitlines()[4:] == [said]


@pytest.fixture
def project(scratch, tmp_path) -> Path:
    """Make a DVC project in the folder of the parameter file."""
    new_repository(tmp_path)
    dvc(tmp_path, "init", "--quiet")
    return tmp_path


def test_sharing_configures_folders_and_settings_and_deletes_no_rows_of_the_clone(project, tmp_path_factory):
    assert "no default remote" in doctor().output
    shared = tmp_path_factory.mktemp("machine") / "shared"
    share = ["--share", str(shared), "--group", grp.getgrgid(os.getgid()).gr_name]
    said = refused("doctor", *share)
    assert said.startswith(
        f"Error: .fne: is a folder, and not a link to {shared}/scratch; copy its rows with "
    )
    assert f"`cp -rn .fne/. {shared}/scratch`" in said
    shutil.rmtree(project / ".fne")
    (project / ".dvc/cache").mkdir(exist_ok=True)
    output = doctor(*share).output
    assert f"  fne doctor --share {shared}\n" in output
    assert (project / ".fne").resolve() == (shared / "scratch").resolve()
    assert dvc(project, "cache", "dir").strip() == str(shared / "cache")
    assert dvc(project, "config", "cache.shared").strip() == "group"
    assert "rm " not in output
    assert "other clones and projects may" in output
    # Again, without the group, in a project that uses the folder already.
    assert doctor("--share", str(shared)).exit_code == 0


def test_strays_in_the_scratch_folder_are_named_with_the_command_that_removes_them(scratch):
    activations = scratch.folder.parent
    (activations / "notes.txt").write_text("mine")
    shutil.copytree(scratch.folder, activations / "damaged")
    (activations / "damaged/kind.json").write_text("{}")
    (activations / "link").symlink_to("/")
    result = doctor()
    assert result.exit_code == 0, result.exception
    named = [line.partition("; fix: ")[2] for line in result.output.splitlines() if "; fix: rm" in line]
    assert named == [f"rm -r .fne/activations/{name}" for name in ("damaged", "link", "notes.txt")]
    assert f"  {scratch.folder.name}  2 rows" in result.output


def test_a_project_without_git_is_described_with_what_is_missing(scratch):
    Path(".dvc").mkdir()
    Path(".dvc/config").touch()
    result = doctor()
    assert result.exit_code == 0, result.exception
    assert "not in a Git repository; run `git init`, or `dvc config core.no_scm true`" in result.output


def test_folders_that_are_nested_too_deeply_are_one_line(scratch):
    Path(".fne/training", *["a"] * 150).mkdir(parents=True)
    said = refused("doctor")
    assert said.count("\n") == 1
    assert "more than 100 folders are nested here, which is the limit" in said
