import os
import shutil
import subprocess
import sys
from threading import Event, Thread

import pytest

from fne.core import locks
from fne.core.locks import FileLock, locked
from tests.support.refusals import refused


def test_a_free_lock_is_taken_without_waiting_and_names_its_owner(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "new/lock", "works", pytest.fail):
            assert (tmp_path / "new/lock").read_text() == str(os.getpid())


def test_the_second_waits_and_names_the_owner(tmp_path):
    events, waiting = [], Event()

    def log(message: str) -> None:
        events.append(message)
        waiting.set()

    def second() -> None:
        with locked(tmp_path / "lock", "works", log):
            events.append("second")

    with locked(tmp_path / "lock", "works", log):
        thread = Thread(target=second)
        thread.start()
        assert waiting.wait(timeout=60)
        events.append("first")
    thread.join()
    assert events == [f"waiting for process {os.getpid()}, which works", "first", "second"]


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from fne.core.locks import locked\n"
        "with locked(Path(sys.argv[1]), 'works', print): os.kill(os.getpid(), 9)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], check=False).returncode == -9
    )
    with locked(tmp_path / "lock", "works", pytest.fail):
        pass


def test_an_error_releases_the_lock(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "lock", "works", pytest.fail):
        raise KeyError
    with locked(tmp_path / "lock", "works", pytest.fail):
        pass


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        refused("file/lock: cannot be written (File exists); choose another place"),
        locked(tmp_path / "file/lock", "works", pytest.fail),
    ):
        pass


def test_one_object_takes_the_lock_once_and_may_release_it_twice(tmp_path):
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    assert not lock.acquire()
    lock.release()
    lock.release()
    assert FileLock(tmp_path / "lock").acquire()


@pytest.mark.parametrize("content", ["", "not a number", "\xff"])
def test_an_owner_that_has_not_written_its_number_yet_is_unknown(tmp_path, content):
    assert FileLock(tmp_path / "lock").owner() == ""
    (tmp_path / "lock").write_text(content, encoding="latin-1")
    assert FileLock(tmp_path / "lock").owner() == ""


def test_a_lock_of_a_removed_file_does_not_count(tmp_path, monkeypatch):
    """Between opening and locking, the owner finishes and removes the folder, and a third process comes."""
    path = tmp_path / "run/lock"
    first, third = FileLock(path), FileLock(path)
    assert first.acquire()
    flock, opened = locks.fcntl.flock, []

    def finish_first(handle: int, operation: int) -> None:
        if not opened:
            opened.append(handle)
            shutil.rmtree(path.parent)
            first.release()
            monkeypatch.setattr(locks.fcntl, "flock", flock)
            assert third.acquire()
        flock(handle, operation)

    monkeypatch.setattr(locks.fcntl, "flock", finish_first)
    second = FileLock(path)
    assert not second.acquire()
    third.release()
    assert second.acquire()
    assert path.read_text() == str(os.getpid())


def test_a_folder_that_is_removed_at_this_moment_is_tried_again_later(tmp_path, monkeypatch):
    lock, open_file = FileLock(tmp_path / "run/lock"), os.open

    def remove_folder(path: os.PathLike[str], *arguments: int) -> int:
        monkeypatch.setattr(os, "open", open_file)
        shutil.rmtree(tmp_path / "run")
        return open_file(path, *arguments)

    monkeypatch.setattr(os, "open", remove_folder)
    assert not lock.acquire()
    assert lock.acquire()
