"""A small project that is searched, made once."""

import os
import shutil
from pathlib import Path

import pytest

from tests.retrieval.projects import write_project


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_project(folder)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished project, as the current folder."""
    folder = tmp_path / "project"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    return folder
