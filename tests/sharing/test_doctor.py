"""Each problem alone, in a project that is otherwise healthy."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from fne.core.dvc import open_repo
from fne.sharing import doctor
from fne.sharing.doctor import LOW_SPACE, run_advice, run_checks
from fne.sharing.folders import LINKS
from tests.support.projects import dvc, git
from tests.support.remotes import make_project


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    project = make_project(tmp_path_factory.mktemp("project"))
    dvc(project, "remote", "modify", "team", "verify", "true")
    dvc(project, "config", "cache.type", LINKS)
    return project


@pytest.fixture
def project(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made.parent, tmp_path / "team", symlinks=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * LOW_SPACE))
    return tmp_path / "team/project"


def found(project: Path) -> list[str]:
    with open_repo(project) as repo:
        return [*run_checks(repo, project / ".fne"), *run_advice(repo, project / ".fne")]


def test_a_healthy_project_has_no_problems(project):
    assert found(project) == []


def test_copies_are_found_where_links_are_possible(project):
    dvc(project, "config", "cache.type", "copy")
    (line,) = found(project)
    assert line.startswith("every artifact is stored twice, although ")
    assert line.endswith(f"; fix: dvc config --local cache.type {LINKS} && dvc checkout --relink")


def test_defaults_of_dvc_are_advice_and_no_problems(project):
    dvc(project, "config", "cache.type", "copy")
    dvc(project, "remote", "modify", "team", "verify", "false")
    with open_repo(project) as repo:
        assert run_checks(repo, project / ".fne") == []
        stored, verified = run_advice(repo, project / ".fne")
    assert stored.startswith("every artifact is stored twice, although ")
    assert verified.startswith("remote 'team': DVC does not verify what it pulls from there; fix: ")


def test_a_full_disk_is_found(project, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    assert found(project) == [
        f"{project}/.dvc/cache: 1.0 GB free on its disk; fix: dvc gc --all-branches --all-tags --all-experiments",
        f"{project}/.fne: 1.0 GB free on its disk; fix: fne doctor --prune all",
    ]


def test_the_advice_about_a_shared_cache_deletes_nothing_of_other_projects(project, monkeypatch):
    dvc(project, "cache", "dir", "--local", str(project.parent / "shared"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    (line,) = [line for line in found(project) if line.startswith(f"{project.parent}/shared: ")]
    assert line.endswith("--projects EVERY_PROJECT_THAT_USES_IT, because others may use this cache")


def test_git_without_a_user_name_is_found(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git(project, "config", "--unset", "user.name")
    assert found(project) == [
        "Git does not know your user.name, which it needs for experiments; fix: git config user.name 'Your Name'"
    ]


def test_a_missing_default_remote_is_found(project):
    dvc(project, "config", "--unset", "core.remote")
    assert found(project) == [
        "no default remote, so `dvc push` and `dvc pull` do nothing; fix: dvc remote default team"
    ]


def test_a_remote_that_is_not_verified_is_found(project):
    dvc(project, "remote", "modify", "team", "verify", "false")
    assert found(project) == [
        "remote 'team': DVC does not verify what it pulls from there; fix: dvc remote modify team verify true"
    ]


def test_a_remote_without_its_package_is_found(project, monkeypatch):
    dvc(project, "remote", "modify", "team", "url", "ssh://example.org/team")
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    assert found(project) == ["remote 'team' needs another package of DVC; fix: pip install 'dvc[ssh]'"]


def test_locks_of_dead_processes_are_found(project):
    lock = project / ".dvc/tmp/rwlock"
    lock.parent.mkdir(exist_ok=True)
    gone = {"pid": 2**22 + 1, "cmd": "dvc repro"}
    alive = {"pid": os.getpid(), "cmd": "dvc repro"}
    lock.write_text(json.dumps({"write": {"a": alive}, "read": {"b": [alive]}}))
    assert found(project) == []
    lock.write_text(json.dumps({"write": {"a": alive}, "read": {"b": [gone]}}))
    assert found(project) == [
        f"{lock}: holds locks of processes that have ended ({2**22 + 1}); fix: rm {lock}"
    ]
    for damaged in ("{", ""):  # DVC was killed while it wrote the file
        lock.write_text(damaged)
        assert found(project) == [f"{lock}: is damaged, so DVC does not start; fix: rm {lock}"]


def test_a_lock_of_git_is_found(project):
    lock = project / ".git/index.lock"
    lock.touch()
    assert found(project) == [
        f"{lock}: a Git command is running, or was killed; fix, if none is running: rm {lock}"
    ]


def test_a_shared_cache_that_dvc_does_not_know_is_found(project):
    (project / ".dvc/cache").chmod(0o2770)
    lines = found(project)
    assert (
        f"{project}/.dvc/cache: is shared, but DVC does not know; fix: dvc config --local cache.shared group"
        in lines
    )
    assert (
        f"{project}/.dvc/cache: is shared, but your umask prevents the group from writing; fix: umask 002"
        in lines
    )


def test_a_folder_that_the_user_may_not_write_to_is_found(project, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != ".fne")
    (project / ".fne").mkdir()
    assert found(project) == [
        f"{project}/.fne: you may not write there; fix: sudo chown -R $(id -un) {project}/.fne"
    ]
