import importlib
from pathlib import Path

import pytest

from fne.datasets.workers import in_processes

POISONED = """
import os

def work(path):
    if "poison" in path.name:
        os._exit(139)
    return path.name.upper()
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A function that kills its process on some files, in a module that processes can import."""
    (tmp_path / "poisoned_work.py").write_text(POISONED)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("poisoned_work").work


def test_a_file_that_kills_its_process_is_named_and_all_others_are_done(work, monkeypatch):
    monkeypatch.setattr("fne.datasets.workers.BATCH", 6)
    names = ["a", "b", "poison", "c", "d", "e", "f", "g"]
    results = dict(in_processes(work, [Path(name) for name in names], workers=2))
    assert {path.name: result for path, result in results.items()} == {
        name: None if name == "poison" else name.upper() for name in names
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_one_worker_is_this_process(workers):
    seen = []
    assert list(in_processes(seen.append, [Path("a"), Path("b")], workers)) == [
        (Path("a"), None),
        (Path("b"), None),
    ]
    assert seen == [Path("a"), Path("b")]


def test_no_files_are_no_work():
    assert list(in_processes(str, [], workers=2)) == []
