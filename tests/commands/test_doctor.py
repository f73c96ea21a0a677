import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from fne.activations.scratch import Scratch
from fne.cli import main
from tests.imports import ROOT

DIGESTS = ["aa" + "0" * 62, "bb" + "0" * 62]


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Scratch:
    """A scratch folder with two rows of one kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
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
    assert lines[3:] == [f"  {scratch.folder.name}  2 rows, 0.0 MB: vgg16, ten"]


def test_rows_are_removed_by_name(scratch):
    assert doctor("--prune", scratch.folder.name).output == "removed 1 kinds of rows, 0.0 MB\n"
    assert scratch.rows(DIGESTS) == {}
    assert len(doctor().output.splitlines()) == 3


def test_all_rows_can_be_removed(scratch):
    other = Scratch(scratch.folder.parent, {"crops": "five"}, features=3)
    fill(other)
    assert doctor("--prune", "all").output.startswith("removed 2 kinds of rows, ")
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
