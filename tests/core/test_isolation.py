"""Work that crashes, hangs or fills the memory costs a process, and nothing else."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fne.core.errors import InputError
from fne.core.isolation import (
    CrashedError,
    StalledError,
    TooLargeError,
    Worker,
    Workers,
    crash_proof_map,
    run_in_subprocess,
)
from fne.core.settings import load_params

LONG = 3600.0


@pytest.fixture(autouse=True)
def _no_process_is_left():
    before = psutil.Process().children()
    yield
    assert psutil.Process().children() == before


def test_the_work_is_done_in_another_process_and_items_arrive_in_order():
    items = ["'a'", "__import__('os').getpid()", "'c'"]
    first, process, last = run_in_subprocess(map, (eval, items), LONG)
    assert (first, last) == ("a", "c")
    assert process != os.getpid()


def test_a_refusal_is_raised_with_its_message():
    with pytest.raises(InputError, match="^nowhere.yaml: no such file"):
        list(run_in_subprocess(map, (load_params, [Path("nowhere.yaml")]), LONG))


def test_an_item_that_exceeds_the_timeout_is_an_error():
    items = run_in_subprocess(map, (time.sleep, [0, LONG]), 3)
    assert next(items) is None
    with pytest.raises(StalledError):
        next(items)


@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_of_the_process_is_an_error(end):
    with pytest.raises(CrashedError):
        list(run_in_subprocess(map, (signal.raise_signal, [end]), LONG))


def test_closing_the_generator_ends_the_process():
    items = run_in_subprocess(iter, (list(range(1_000_000)),), LONG)
    assert next(items) == 0
    items.close()


def test_work_that_needs_too_much_memory_is_an_error():
    with pytest.raises(TooLargeError):
        list(run_in_subprocess(map, (bytearray, [1 << 29]), LONG, 1 << 28))


ATTEMPTS = """
import os, sys
from contextlib import suppress

def take_over(reply):
    for handle in range(3, 10):
        with suppress(OSError):
            os.write(handle, reply)
    os._exit(0)

def attempt():
    try:
        bytearray(4 << 30)
    except MemoryError:
        yield "memory"
    try:
        file = open("written", "wb"); file.write(b"x"); file.flush()
    except OSError:
        yield "files"
    yield sys.stdin.read()
    print("printed", flush=True)
    yield b"end"
"""


def test_the_process_may_not_write_files_or_take_all_memory(tmp_path, monkeypatch):
    (tmp_path / "attempts.py").write_text(ATTEMPTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    attempt = importlib.import_module("attempts").attempt
    found = list(run_in_subprocess(attempt, (), LONG, 3 << 30))
    assert found == ["memory", "files", "", b"end"]
    assert not (tmp_path / "written").exists() or not (tmp_path / "written").stat().st_size


def test_a_refusal_and_a_lack_of_memory_leave_the_process_alive():
    workers = Workers(1, 1 << 28)
    [process] = workers.call(map, (eval, ["__import__('os').getpid()"]))
    with pytest.raises(InputError):
        workers.call(map, (load_params, [Path("nowhere.yaml")]))
    with pytest.raises(TooLargeError):
        workers.call(map, (bytearray, [1 << 29]))
    assert workers.call(map, (eval, ["__import__('os').getpid()"])) == [process]
    workers.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\0",
        b"\1" + b"\xff" * 8,
        b"\0" + (1).to_bytes(8) + b"{",
        b"\0" + (90_000).to_bytes(8) + b"[" * 90_000,
        b"\0" + (1).to_bytes(8) + b"\xff",
    ],
)
def test_a_process_that_a_file_has_taken_over_is_one_that_crashed(tmp_path, monkeypatch, reply):
    (tmp_path / "attempts.py").write_text(ATTEMPTS)
    monkeypatch.syspath_prepend(tmp_path)
    take_over = importlib.import_module("attempts").take_over
    worker = Worker()
    with pytest.raises(CrashedError):
        list(worker.call(take_over, (reply,), LONG))
    assert not worker.alive


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
from fne.core.isolation import crash_proof_map

# A shell that starts tests in the background lets them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__mp_main__":
    os.kill(os.getpid(), signal.SIGINT)
if __name__ == "__main__":
    print(len(list(crash_proof_map(str, [Path("a"), Path("b")], 2))), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A function that kills its process on some files, in a module that processes can import."""
    (tmp_path / "poisoned_work.py").write_text(POISONED)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("poisoned_work").work


def test_a_file_that_kills_its_process_is_named_and_all_others_are_done(work, monkeypatch):
    monkeypatch.setattr("fne.core.isolation.BATCH", 6)
    names = ["a", "b", "poison", "c", "d", "e", "f", "g"]
    results = dict(crash_proof_map(work, [Path(name) for name in names], workers=2))
    assert {path.name: result for path, result in results.items()} == {
        name: None if name == "poison" else name.upper() for name in names
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_one_worker_is_this_process(workers):
    seen, paths = [], [Path("a"), Path("b")]
    assert list(crash_proof_map(seen.append, paths, workers)) == [(path, None) for path in paths]
    assert seen == paths
    assert list(crash_proof_map(str, [], workers=2)) == []


def test_ctrl_c_stops_the_parent_and_never_a_process_of_its_own(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.stdout == "2\n"
    assert run.stderr.count("Traceback") == 1
    assert run.stderr.endswith("KeyboardInterrupt\n")
