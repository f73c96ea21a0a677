import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from fne.sharing.git_hook import BEFORE, HOOK, install_hook
from tests.support.imports import ROOT
from tests.support.projects import dvc, git
from tests.support.refusals import refused
from tests.support.remotes import REMOTE, remote_object


def push(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}
    command = ["git", "push", "--quiet", "origin", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_a_push_passes_when_the_data_is_there_and_stops_when_it_is_not(project):
    assert install_hook(REMOTE) == f"rm {project}/.git/hooks/{HOOK}"
    assert push(project, "main").returncode == 0
    pushed = git(project, "ls-remote", "origin")
    remote_object(project, "model.bin").unlink()
    stopped = push(project, "main:more")
    assert stopped.returncode == 1
    assert "model.bin (" in stopped.stderr
    assert "fix: fne verify --remote team --repair" in stopped.stderr
    assert git(project, "ls-remote", "origin") == pushed != ""


def test_the_pushed_commits_are_checked_and_not_the_work_tree(project):
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


def test_a_foreign_hook_is_kept_and_gets_the_input_of_git(project):
    foreign = project / ".git/hooks" / HOOK
    foreign.write_text('#!/bin/sh\necho "$1" > received\ncat >> received\n[ ! -e forbidden ]\n')
    foreign.chmod(0o755)
    install_hook(REMOTE)
    assert push(project, "main").returncode == 0
    first, second = (project / "received").read_text().splitlines()
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
    with refused("fne wrote neither; remove one of them"):
        install_hook(REMOTE)
    assert [(hooks / HOOK).read_text(), (hooks / BEFORE).read_text()] == ["one", "two"]


def test_a_hook_needs_a_git_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("not in a Git repository; run this in the project's folder"):
        install_hook(REMOTE)


@pytest.fixture
def global_hooks(project, monkeypatch) -> Path:
    """A folder of hooks that all repositories of the user share."""
    home = project.parent / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("pre-commit", HOOK):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {home}/log\n")
        (hooks / name).chmod(0o755)
    git(project, "config", "--global", "core.hooksPath", str(hooks))
    for key, value in (("user.name", "A"), ("user.email", "a@example.org")):
        git(project, "config", "--global", key, value)
    return hooks


def test_hooks_that_all_repositories_share_stay_run_and_are_restored_by_the_printed_command(
    project, global_hooks
):
    before = {path.name: path.read_text() for path in global_hooks.iterdir()}
    install_hook(REMOTE)
    removal = install_hook(REMOTE)
    assert {path.name: path.read_text() for path in global_hooks.iterdir()} == before
    git(project, "commit", "--quiet", "--allow-empty", "--message", "More")
    assert push(project, "main").returncode == 0
    assert (project.parent / "home/log").read_text().split() == ["pre-commit", HOOK]
    remote_object(project, "model.bin").unlink()
    assert push(project, "main:more").returncode == 1
    subprocess.run(removal, shell=True, check=True, cwd=project)
    (project.parent / "home/log").unlink()
    assert push(project, "main:more").returncode == 0
    assert (project.parent / "home/log").read_text().split() == [HOOK]


def test_pushes_of_other_repositories_do_not_fail(project, global_hooks):
    install_hook(REMOTE)
    other = project.parent / "other"
    git(project, "init", "--quiet", "--initial-branch=main", str(other))
    git(other, "remote", "add", "origin", "../origin")
    git(other, "commit", "--quiet", "--allow-empty", "--message", "Other")
    assert push(other, "main:other").returncode == 0


def test_a_folder_of_hooks_in_the_work_tree_is_not_written(project):
    (project / ".husky").mkdir()
    git(project, "config", "--local", "core.hooksPath", ".husky")
    removal = install_hook(REMOTE)
    assert list((project / ".husky").iterdir()) == []
    remote_object(project, "model.bin").unlink()
    assert push(project, "main").returncode == 1
    subprocess.run(removal, shell=True, check=True, cwd=project)
    assert git(project, "config", "core.hooksPath").strip() == ".husky"


def test_a_push_from_a_branch_without_the_project_passes(project):
    install_hook(REMOTE)
    git(project, "checkout", "--quiet", "--orphan", "pages")
    git(project, "rm", "--quiet", "-r", "--cached", ".")
    shutil.rmtree(project / ".dvc")
    git(project, "commit", "--quiet", "--allow-empty", "--message", "Pages")
    assert push(project, "pages").returncode == 0
