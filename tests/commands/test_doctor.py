import grp
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from fne.activations.scratch import Scratch
from fne.cli import main
from tests.imports import ROOT
from tests.projects import change_params, dvc, git

DIGESTS = ["aa" + "0" * 62, "bb" + "0" * 62]


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Scratch:
    """A scratch folder with two rows of one kind."""
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
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_it_tells_machine_and_scratch_folder(scratch):
    lines = doctor().output.splitlines()
    assert lines[0].startswith("python 3.")
    assert lines[1].startswith("GPU: ")
    assert lines[2].startswith("scratch folder .fne: ")
    assert lines[3:] == [f"  {scratch.folder.name}  2 rows, 0.0 MB: vgg16, ten", "nothing to mend"]


def test_training_that_has_not_finished_is_told_with_its_size(scratch):
    folder = scratch.folder.parent.parent / "training" / "0123456789abcdef"
    folder.mkdir(parents=True)
    assert len(doctor().output.splitlines()) == 5
    (folder / "00000001.safetensors").write_bytes(b"0" * 200_000)
    assert "  training that has not finished: 0.2 MB, in .fne/training\n" in doctor().output


def test_rows_are_removed_by_name(scratch):
    assert doctor("--prune", scratch.folder.name).output == "removed 1 kinds of rows, 0.0 MB\n"
    assert scratch.rows(DIGESTS) == {}
    assert len(doctor().output.splitlines()) == 4


def test_all_rows_can_be_removed(scratch):
    other = Scratch(scratch.folder.parent, {"crops": "five"}, features=3)
    fill(other)
    assert doctor("--prune", "all").output.startswith("removed 2 kinds of rows, ")
    assert not list(Path(".fne").rglob("*.rows")) + list(Path(".fne").rglob("*.made"))
    assert {**scratch.rows(DIGESTS), **other.rows(DIGESTS)} == {}


def test_an_unknown_name_lists_the_known_ones(scratch):
    result = doctor("--prune", "x")
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: there are no rows 'x' in .fne; there are: {scratch.folder.name}\n",
    )


def test_rows_in_use_are_not_removed(scratch):
    ((journal, _, _),) = scratch.claims(["cc" + "0" * 62])  # locked, and nothing written yet
    result = doctor("--prune", "all")
    journal.unlock()
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: .fne/activations/{scratch.folder.name}: process {os.getpid()} is using it; wait for it or stop it\n"
    )
    assert len(scratch.rows(DIGESTS)) == 2


def change(section: str, **keys: object) -> None:
    change_params(Path(), {section: keys})


def test_settings_that_the_machine_cannot_follow_are_told(scratch, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    change("runtime", device="cuda", threads=3, workers=2)
    assert doctor().output.splitlines()[4:] == [
        "runtime.device is cuda, and torch finds no GPU; mend it: set it to auto in params.yaml",
        "runtime.threads is 3 on 2 cores; mend it: lower it in params.yaml",
    ]


def test_missing_weights_are_told(scratch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    change("extract", weights="weights/imagenet.yaml")
    assert doctor().output.splitlines()[4:] == [
        "the weights that weights/imagenet.yaml names are not here; "
        "mend it: dvc repro extract, which downloads vgg16-397923af.pth"
    ]
    change("extract", weights="mine.safetensors")
    assert doctor().output.splitlines()[4:] == [
        "extract.weights: mine.safetensors is not there; mend it: dvc pull mine.safetensors"
    ]


@pytest.fixture
def project(scratch, tmp_path) -> Path:
    """A DVC project in the folder of the parameter file."""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "Test")
    git(tmp_path, "config", "user.email", "test@example.org")
    dvc(tmp_path, "init", "--quiet")
    return tmp_path


def test_the_project_is_examined_too(project):
    assert "no default remote, so `dvc push` and `dvc pull` share nothing; mend it: " in doctor().output


def test_sharing_sets_folders_and_settings(project, tmp_path_factory):
    shared = tmp_path_factory.mktemp("machine") / "shared"
    shutil.rmtree(project / ".fne")
    group = grp.getgrgid(os.getgid()).gr_name
    output = doctor("--share", str(shared), "--group", group).output
    assert f"  fne doctor --share {shared}\n" in output
    assert (project / ".fne").resolve() == (shared / "scratch").resolve()
    assert dvc(project, "cache", "dir").strip() == str(shared / "cache")
    assert dvc(project, "config", "cache.shared").strip() == "group"
    # Again, as a colleague who need not know the group; and in a project that has it already.
    assert doctor("--share", str(shared)).exit_code == 0


def test_rows_of_the_clone_are_not_thrown_away(project, tmp_path_factory):
    shared = tmp_path_factory.mktemp("machine") / "shared"
    result = doctor("--share", str(shared), "--group", grp.getgrgid(os.getgid()).gr_name)
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: .fne: is a folder of this clone; take its rows along with `cp -rn .fne/. {shared}/scratch && "
        "rm -r .fne`, and run this again\n",
    )
