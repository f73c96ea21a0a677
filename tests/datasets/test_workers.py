import importlib
import subprocess
import sys
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

# A process imports the main script before anything else of ours.
INTERRUPTED = """
import os, signal
from pathlib import Path
from fne.datasets.workers import in_processes

# A shell that starts tests in the background lets them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__mp_main__":
    os.kill(os.getpid(), signal.SIGINT)
if __name__ == "__main__":
    print(len(list(in_processes(str, [Path("a"), Path("b")], 2))), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
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


def test_ctrl_c_stops_the_parent_and_never_a_process_of_its_own(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.stdout == "2\n"
    assert run.stderr.count("Traceback") == 1
    assert run.stderr.endswith("KeyboardInterrupt\n")
