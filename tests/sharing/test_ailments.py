"""Each ailment alone, in a project that is otherwise well."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from fne.sharing import ailments as subject
from fne.sharing.ailments import LITTLE, ailments
from fne.sharing.named import open_project
from fne.sharing.shared import LINKS
from tests.projects import dvc, git
from tests.sharing.samples import make_project


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    project = make_project(tmp_path_factory.mktemp("project"))
    dvc(project, "remote", "modify", "team", "verify", "true")
    dvc(project, "config", "cache.type", LINKS)
    return project


@pytest.fixture
def project(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made.parent, tmp_path / "team", symlinks=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * LITTLE))
    return tmp_path / "team/project"


def found(project: Path) -> list[str]:
    with open_project(project) as repo:
        return ailments(repo, project / ".fne")


def test_a_healthy_project_has_none(project):
    assert found(project) == []


def test_copies_where_links_would_do(project):
    dvc(project, "config", "cache.type", "copy")
    (line,) = found(project)
    assert line.startswith("every artifact is kept twice, and ")
    assert line.endswith(f"; mend it: dvc config --local cache.type {LINKS} && dvc checkout --relink")


def test_a_full_disk(project, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    assert found(project) == [
        f"{project}/.dvc/cache: 1.0 GB free on its disk; mend it: dvc gc --workspace",
        f"{project}/.fne: 1.0 GB free on its disk; mend it: fne doctor --prune all",
    ]


def test_git_without_a_name(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git(project, "config", "--unset", "user.name")
    assert found(project) == [
        "Git does not know your user.name, and experiments are commits; mend it: git config user.name 'Your Name'"
    ]


def test_no_default_remote(project):
    dvc(project, "config", "--unset", "core.remote")
    assert found(project) == [
        "no default remote, so `dvc push` and `dvc pull` share nothing; mend it: dvc remote default team"
    ]


def test_a_remote_that_is_believed(project):
    dvc(project, "remote", "modify", "team", "verify", "false")
    assert found(project) == [
        "remote 'team': DVC takes what it pulls from there for good; mend it: dvc remote modify team verify true"
    ]


def test_a_remote_without_its_package(project, monkeypatch):
    dvc(project, "remote", "modify", "team", "url", "ssh://example.org/team")
    monkeypatch.setattr(subject, "find_spec", lambda _: None)
    assert found(project) == ["remote 'team' needs a package of DVC's; mend it: pip install 'dvc[ssh]'"]


def test_locks_of_dead_processes(project):
    lock = project / ".dvc/tmp/rwlock"
    lock.parent.mkdir(exist_ok=True)
    gone = {"pid": 2**22 + 1, "cmd": "dvc repro"}
    alive = {"pid": os.getpid(), "cmd": "dvc repro"}
    lock.write_text(json.dumps({"write": {"a": alive}, "read": {"b": [alive]}}))
    assert found(project) == []
    lock.write_text(json.dumps({"write": {"a": alive}, "read": {"b": [gone]}}))
    assert found(project) == [
        f"{lock}: holds locks of processes that are gone ({2**22 + 1}); mend it: rm {lock}"
    ]
    lock.write_text("{")
    assert found(project) == [f"{lock}: is damaged, and DVC will not start; mend it: rm {lock}"]


def test_a_lock_of_git(project):
    lock = project / ".git/index.lock"
    lock.touch()
    assert found(project) == [
        f"{lock}: a Git command is running, or was killed; mend it, if none is running: rm {lock}"
    ]


def test_a_shared_cache_that_dvc_does_not_know(project):
    (project / ".dvc/cache").chmod(0o2770)
    lines = found(project)
    assert (
        f"{project}/.dvc/cache: is shared, and DVC does not know; mend it: dvc config --local cache.shared group"
        in lines
    )
    assert (
        f"{project}/.dvc/cache: is shared, and your umask keeps the group from writing; mend it: umask 002"
        in lines
    )


def test_a_folder_that_we_may_not_write_to(project, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != ".fne")
    (project / ".fne").mkdir()
    assert found(project) == [
        f"{project}/.fne: you may not write there; mend it: sudo chown -R $(id -un) {project}/.fne"
    ]
