"""A project with committed runs, which the tests of several commands read."""

from pathlib import Path

import pytest

from tests.support.paper_tables import project, run


@pytest.fixture(scope="session")
def original(tmp_path_factory) -> Path:
    """Make a project with two seeds of one method and one of another, each committed."""
    folder = project(tmp_path_factory.mktemp("runs") / "project", "FNE-MOE-abs", "demo")
    run(folder)
    run(folder, "train.seed=1")
    run(folder, "train.embed_dim=32")
    return folder
