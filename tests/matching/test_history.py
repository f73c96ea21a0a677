import subprocess

import pytest
from dvc.repo import Repo

from fne.core.errors import InputError
from fne.matching.history import writing_history


def test_a_repository_without_a_commit_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    Repo.init().close()
    with pytest.raises(InputError) as caught, writing_history(tmp_path / "history"):
        pass
    assert caught.value.message == (
        "the history cannot be written: Empty git repo; commit something to Git first"
    )
