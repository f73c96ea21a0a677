"""A copy of the small finished project, to search in."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    """Copy the finished project and make it the current folder."""
    folder = tmp_path / "project"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    return folder
