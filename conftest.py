"""A small finished project for tests and for the doctests of the Python interface."""

import os
import shutil
from pathlib import Path

import pytest

import fne
from tests.support.search import run_stages, write_project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with 24 images on which all stages up to `evaluate` have run, made once per session."""
    folder = tmp_path_factory.mktemp("finished")
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_project(folder)
        run_stages("evaluate")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished project, which is the current folder."""
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "project"))
    return tmp_path / "project"


@pytest.fixture(autouse=True)
def interface(request: pytest.FixtureRequest) -> None:
    """Give `fne` and a finished `project` to the doctests of the Python interface."""
    documented = {"api.py", "search"} & {*Path(request.node.path).parts}
    if isinstance(request.node, pytest.DoctestItem) and documented:
        namespace = request.getfixturevalue("doctest_namespace")
        namespace |= {"fne": fne, "project": request.getfixturevalue("finished")}
