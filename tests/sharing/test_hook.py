import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.sharing.hook import BEFORE, HOOK, install_hook
from tests.imports import ROOT
from tests.projects import dvc, git
from tests.sharing.samples import REMOTE, make_project, remote_object


@pytest.fixture(scope="module")
def pushed(tmp_path_factory) -> Path:
    project = make_project(tmp_path_factory.mktemp("pushed"))
    git(project, "init", "--quiet", "--bare", "../origin")
    git(project, "remote", "add", "origin", "../origin")
    return project


@pytest.fixture
def project(pushed, tmp_path, monkeypatch) -> Path:
    """A project whose remote has everything, with a bare repository beside it as origin."""
    shutil.copytree(pushed.parent, tmp_path / "team", symlinks=True)
    monkeypatch.chdir(tmp_path / "team/project")
    return tmp_path / "team/project"


def push(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}
    command = ["git", "push", "--quiet", "origin", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_a_push_passes_when_the_data_is_there(project):
    assert install_hook(REMOTE) == f"rm {project}/.git/hooks/{HOOK}"
    assert push(project, "main").returncode == 0


def test_a_push_stops_when_the_data_is_not_there(project):
    install_hook(REMOTE)
    remote_object(project, "model.bin").unlink()
    stopped = push(project, "main")
    assert stopped.returncode == 1
    assert "model.bin (" in stopped.stderr
    assert "mend it: fne verify --remote team --repair" in stopped.stderr
    assert git(project, "ls-remote", "origin") == ""


def test_what_is_pushed_counts_and_not_what_is_checked_out(project):
    install_hook(REMOTE)
    git(project, "checkout", "--quiet", "-b", "other")
    (project / "model.bin").write_bytes(b"not pushed")
    dvc(project, "add", "--quiet", "model.bin")
    git(project, "commit", "--quiet", "--all", "--message", "Other")
    assert push(project, "main").returncode == 0
    assert push(project, "other").returncode == 1


def test_removing_a_branch_needs_no_data(project):
    assert push(project, "main:gone").returncode == 0
    install_hook(REMOTE)
    shutil.rmtree(project.parent / "remote")
    assert push(project, "--delete", "gone").returncode == 0


def test_the_hook_of_dvc_sends_the_data_first(project):
    dvc(project, "install")
    removal = install_hook(REMOTE)
    shutil.rmtree(project.parent / "remote")
    assert push(project, "main").returncode == 0
    assert remote_object(project, "model.bin").exists()
    subprocess.run(removal, shell=True, check=True)
    assert "dvc git-hook pre-push" in (project / ".git/hooks" / HOOK).read_text()


def test_a_foreign_hook_is_kept_and_hears_what_git_says(project):
    foreign = project / ".git/hooks" / HOOK
    foreign.write_text('#!/bin/sh\necho "$1" > heard\ncat >> heard\n[ ! -e forbidden ]\n')
    foreign.chmod(0o755)
    install_hook(REMOTE)
    assert push(project, "main").returncode == 0
    first, second = (project / "heard").read_text().splitlines()
    assert first == "origin"
    assert second.startswith("refs/heads/main ")
    (project / "forbidden").touch()
    assert push(project, "main:more").returncode == 1


def test_installing_twice_changes_nothing(project):
    foreign = project / ".git/hooks" / HOOK
    foreign.write_text("#!/bin/sh\n")
    install_hook(REMOTE)
    hook = foreign.read_text()
    install_hook(REMOTE)
    assert foreign.read_text() == hook
    assert foreign.with_name(BEFORE).read_text() == "#!/bin/sh\n"
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o755


def test_two_foreign_hooks_are_not_overwritten(project):
    hooks = project / ".git/hooks"
    (hooks / HOOK).write_text("one")
    (hooks / BEFORE).write_text("two")
    with pytest.raises(InputError, match="neither is ours; remove one of them"):
        install_hook(REMOTE)
    assert [(hooks / HOOK).read_text(), (hooks / BEFORE).read_text()] == ["one", "two"]


def test_without_git_there_is_no_hook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no Git repository here"):
        install_hook(REMOTE)
