import os
import subprocess
import sys
from threading import Event, Thread

import pytest

from fne.core.errors import InputError
from fne.retrieval.turns import in_turn


def test_nobody_waits_where_nobody_is(tmp_path):
    said = []
    for _ in range(2):
        with in_turn(tmp_path / "new/lock", "works", said.append):
            assert (tmp_path / "new/lock").read_text() == str(os.getpid())
    assert said == []


def test_the_second_waits_and_says_for_whom(tmp_path):
    events, waiting = [], Event()

    def say(message: str) -> None:
        events.append(message)
        waiting.set()

    def second() -> None:
        with in_turn(tmp_path / "lock", "works", say):
            events.append("second")

    with in_turn(tmp_path / "lock", "works", say):
        thread = Thread(target=second)
        thread.start()
        assert waiting.wait(timeout=60)
        events.append("first")
    thread.join()
    assert events == [f"waiting for process {os.getpid()}, which works", "first", "second"]


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from fne.retrieval.turns import in_turn\n"
        "with in_turn(Path(sys.argv[1]), 'works', print): os.kill(os.getpid(), 9)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], check=False).returncode == -9
    )
    with in_turn(tmp_path / "lock", "works", pytest.fail):
        pass


def test_an_error_gives_the_lock_back(tmp_path):
    with pytest.raises(KeyError), in_turn(tmp_path / "lock", "works", pytest.fail):
        raise KeyError
    with in_turn(tmp_path / "lock", "works", pytest.fail):
        pass


def test_a_place_that_cannot_be_written_to_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as error, in_turn(tmp_path / "file/lock", "works", pytest.fail):
        pass
    assert error.value.message == (
        f"{tmp_path / 'file/lock'}: cannot be written (File exists); choose another place"
    )
