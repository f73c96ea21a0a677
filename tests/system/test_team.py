"""A team at work: clones that share results, experiments and one machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fne.core.dvc import pipeline_outs
from fne.extraction.finished_rows import Scratch
from fne.sharing.folders import create_shared_folder
from fne.sharing.remote_verdict import verify_remote
from tests.support.imports import ROOT
from tests.support.projects import commit, dvc, git, quick_project, stages_run
from tests.support.servers import NAME, Remote


@pytest.fixture(scope="module")
def team(tmp_path_factory) -> Path:
    """A finished project, pushed to a bare repository and to a folder."""
    top = tmp_path_factory.mktemp("team")
    project = quick_project(top / "first")
    Remote(str(top / "objects"), top / "objects").attach(project)
    dvc(project, "repro")
    commit(project)
    git(project, "clone", "--quiet", "--bare", ".", str(top / "origin"))
    git(project, "remote", "add", "origin", str(top / "origin"))
    dvc(project, "push", "--quiet", "--run-cache")
    return top


def colleague(team: Path, folder: Path) -> Path:
    git(team, "clone", "--quiet", str(team / "origin"), str(folder))
    git(folder, "config", "user.name", "Colleague")
    git(folder, "config", "user.email", "colleague@example.org")
    Remote(str(team / "objects"), team / "objects").attach(folder)
    return folder


def test_a_colleague_computes_nothing(team, tmp_path):
    clone = colleague(team, tmp_path / "clone")
    dvc(clone, "pull", "--allow-missing")
    assert stages_run(dvc(clone, "repro")) == []
    model = "models/matching/model.safetensors"
    assert (clone / model).read_bytes() == (team / "first" / model).read_bytes()


def test_results_are_restored_without_a_lock_file(team, tmp_path, monkeypatch):
    monkeypatch.chdir(team / "first")
    assert verify_remote(NAME, repair=True, run_cache=True).faults == []
    clone = colleague(team, tmp_path / "clone")
    (clone / "dvc.lock").unlink()
    # DVC's run cache has no outputs that Git keeps, such as those of `check`.
    assert stages_run(dvc(clone, "repro", "--pull")) == ["check"]


def test_only_what_is_needed_is_pulled(team, tmp_path):
    clone = colleague(team, tmp_path / "clone")
    dvc(clone, "pull", "features/embeddings")
    assert (clone / "features/embeddings/manifest.json").exists()
    assert not (clone / "features/activations").exists()


def test_a_colleague_searches_with_what_the_documentation_names(team, tmp_path):
    clone = colleague(team, tmp_path / "clone")
    documented = (ROOT / "docs/sharing.md").read_text()
    (targets,) = re.findall(r"\| images for a sentence \| `dvc pull (.*?)`", documented)
    dvc(clone, "pull", *targets.split())
    command = [sys.executable, "-m", "fne", "search", "a red circle", "--json"]
    found = json.loads(subprocess.run(command, cwd=clone, check=True, capture_output=True).stdout)
    assert (found["found"], found["candidates"]) == ("images", 40)
    assert not (clone / "features/embeddings").exists()


def test_an_experiment_goes_through_git(team, tmp_path):
    dvc(team / "first", "exp", "run", "--name", "narrow", "-S", "evaluate.top=5")
    dvc(team / "first", "exp", "push", "origin", "narrow")
    clone = colleague(team, tmp_path / "clone")
    dvc(clone, "exp", "pull", "origin", "narrow")
    command = [sys.executable, "-m", "dvc", "exp", "apply", "narrow"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    # DVC reports the outputs of pipelines that never ran, after it has applied the experiment.
    assert done.returncode == 255, done.stderr
    failed = done.stderr.split("Checkout failed for following targets:\n")[1].split("\nIs your cache")[0]
    outs = pipeline_outs(clone)
    never_run = {"tagging", "captioning", "judgments"}
    assert {outs[Path(name)].stage.split("/")[1] for name in failed.split()} == never_run
    assert stages_run(dvc(clone, "repro")) == []


@pytest.fixture
def users():
    """Two users of a group, who are removed again."""
    if os.geteuid() != 0 or not shutil.which("useradd"):
        pytest.skip("needs root, to make two users")
    group, names = f"fnet{os.getpid()}", [f"fnea{os.getpid()}", f"fneb{os.getpid()}"]
    subprocess.run(["groupadd", group], check=True)
    try:
        for name in names:
            subprocess.run(["useradd", "--no-create-home", "--groups", group, name], check=True)
        yield group, names
    finally:
        for name in names:
            subprocess.run(["userdel", name], check=False, capture_output=True)
        subprocess.run(["groupdel", group], check=False, capture_output=True)


def test_two_users_fill_one_scratch_folder(users):
    group, names = users
    top = Path("/tmp", group)  # pytest's own folders are closed to other users
    try:
        create_shared_folder(top, group)
        for number, name in enumerate(names):
            assert append_as(name, top / "scratch", number) == 0
        kind = Scratch(top / "scratch", {"kind": "test"}, 3)
        assert len(kind.rows([row(0), row(1)])) == 2
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(top)


def row(number: int) -> str:
    return "aa" + f"{number:062d}"  # one journal for both


def append_as(user: str, folder: Path, number: int) -> int:
    """Append a row as another user with a strict umask; return the exit code."""
    import pwd

    import numpy as np

    entry = pwd.getpwnam(user)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.initgroups(user, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            os.umask(0o077)
            for journal, _, missing in Scratch(folder, {"kind": "test"}, 3).claims([row(number)]):
                for digest in missing:
                    journal.append(digest, np.ones(3))
                journal.unlock()
                code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
