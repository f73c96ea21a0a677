"""A small project whose remote has everything."""

import shutil
from pathlib import Path

import pytest

from tests.support.projects import git
from tests.support.remotes import make_project


@pytest.fixture(scope="session")
def pushed(tmp_path_factory) -> Path:
    """A project with a remote, and a bare repository beside it as origin, which nothing was pushed to."""
    project = make_project(tmp_path_factory.mktemp("pushed"))
    git(project, "init", "--quiet", "--bare", "../origin")
    git(project, "remote", "add", "origin", "../origin")
    return project


@pytest.fixture
def project(pushed, tmp_path, monkeypatch) -> Path:
    """A copy of it to work in."""
    shutil.copytree(pushed.parent, tmp_path / "team", symlinks=True)
    monkeypatch.chdir(tmp_path / "team/project")
    return tmp_path / "team/project"
