"""Each problem alone, in a project that is otherwise healthy."""

import json
import os
import shutil
from configparser import ConfigParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from fne.core.dvc import open_repo
from fne.sharing import doctor
from fne.sharing.doctor import ADVICE, CHECKS, LOW_SPACE, run
from fne.sharing.folders import LINKS
from tests.support.projects import git


@pytest.fixture(scope="module")
def made(pushed, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(pushed.parent, folder, symlinks=True, dirs_exist_ok=True)
    configure(folder / "project", 'remote "team"', "verify", "true")
    configure(folder / "project", "cache", "type", LINKS)
    return folder / "project"


@pytest.fixture
def project(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made.parent, tmp_path / "team", symlinks=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * LOW_SPACE))
    return tmp_path / "team/project"


def configure(project: Path, section: str, key: str, value: str | None) -> None:
    """Set a key of DVC's configuration, or remove it, without a process."""
    path, config = project / ".dvc/config", ConfigParser()
    config.read(path)
    place = f"'{section}'" if " " in section else section
    if not config.has_section(place):
        config.add_section(place)
    config.set(place, key, value) if value else config.remove_option(place, key)
    with path.open("w") as file:
        config.write(file)


def only(project: Path) -> str:
    """Return the only problem that is found, or piece of advice."""
    (line,) = found(project)
    return line


def found(project: Path) -> list[str]:
    with open_repo(project) as repo:
        return run([*CHECKS, *ADVICE], repo, project / ".fne")


def test_a_healthy_project_has_no_problems(project):
    assert found(project) == []


def test_defaults_of_dvc_are_advice_and_no_problems(project):
    configure(project, "cache", "type", "copy")
    configure(project, 'remote "team"', "verify", "false")
    with open_repo(project) as repo:
        assert run(CHECKS, repo, project / ".fne") == []
        stored, verified = run(ADVICE, repo, project / ".fne")
    assert stored.startswith("every artifact is stored twice, although ")
    assert stored.endswith(f"; fix: dvc config --local cache.type {LINKS} && dvc checkout --relink")
    assert verified.startswith("remote 'team': DVC does not verify what it pulls from there; fix: ")
    assert verified.endswith("fix: dvc remote modify team verify true")


def test_a_full_disk_is_found_and_the_advice_deletes_nothing_of_other_projects(project, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    space = "1.0 GB free on its disk; fix:"
    assert found(project) == [
        f"{project}/.dvc/cache: {space} dvc gc --all-branches --all-tags --all-experiments",
        f"{project}/.fne: {space} fne doctor --prune all",
    ]
    configure(project, "cache", "dir", str(project.parent / "shared"))
    (line,) = [line for line in found(project) if line.startswith(f"{project.parent}/shared: ")]
    assert line.endswith("--projects EVERY_PROJECT_THAT_USES_IT, because others may use this cache")


def test_git_without_a_user_name_is_found(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git(project, "config", "--unset", "user.name")
    line = only(project)
    assert line.startswith(
        "Git does not know your user.name, which it needs for experiments; fix: git config "
    )


def test_a_missing_default_remote_and_a_remote_without_its_package_are_found(project, monkeypatch):
    configure(project, 'remote "team"', "url", "ssh://example.org/team")
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "find_spec", lambda _: None)
        assert only(project) == "remote 'team' needs another package of DVC; fix: pip install 'dvc[ssh]'"
    monkeypatch.setattr(doctor, "find_spec", lambda _: object())
    configure(project, "core", "remote", None)
    line = only(project)
    assert line == "no default remote, so `dvc push` and `dvc pull` do nothing; fix: dvc remote default team"


def test_locks_of_dead_processes_are_found(project):
    lock = project / ".dvc/tmp/rwlock"
    lock.parent.mkdir(exist_ok=True)
    gone = {"pid": 2**22 + 1, "cmd": "dvc repro"}
    alive = {"pid": os.getpid(), "cmd": "dvc repro"}
    lock.write_text(json.dumps({"write": {"a": alive}, "read": {"b": [alive]}}))
    assert found(project) == []
    lock.write_text(json.dumps({"write": {"a": alive}, "read": {"b": [gone]}}))
    said = f"{lock}: holds locks of processes that have ended ({2**22 + 1}); fix: rm {lock}"
    assert only(project) == said
    for damaged in ("{", ""):  # DVC was killed while it wrote the file
        lock.write_text(damaged)
        assert only(project) == f"{lock}: is damaged, so DVC does not start; fix: rm {lock}"


def test_a_lock_of_git_is_found(project):
    lock = project / ".git/index.lock"
    lock.touch()
    said = f"{lock}: a Git command is running, or was killed; fix, if none is running: rm {lock}"
    assert only(project) == said


def test_a_shared_cache_that_dvc_does_not_know_is_found(project):
    cache = project / ".dvc/cache"
    cache.chmod(0o2770)
    lines = found(project)
    said = f"{cache}: is shared, but DVC does not know; fix: dvc config --local cache.shared group"
    assert said in lines
    assert f"{cache}: is shared, but your umask prevents the group from writing; fix: umask 002" in lines


def test_a_folder_that_the_user_may_not_write_to_is_found(project, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != ".fne")
    scratch = project / ".fne"
    scratch.mkdir()
    assert only(project) == f"{scratch}: you may not write there; fix: sudo chown -R $(id -un) {scratch}"
