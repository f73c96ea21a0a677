import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fne.store.journal import Journal
from tests.support.disks import full_disk
from tests.support.imports import ROOT
from tests.support.refusals import refused

SOURCES = [hashlib.sha256(bytes([number])).hexdigest() for number in range(5)]


def filled(path, count: int) -> Journal:
    journal = Journal(path, features=3)
    assert journal.lock()
    for number in range(count):
        journal.append(SOURCES[number], np.full(3, number))
    journal.unlock()
    return journal


def test_rows_are_read_by_the_digest_of_their_source(tmp_path):
    assert Journal(tmp_path / "j", features=3).read() == {}
    rows = {source: row.tolist() for source, row in filled(tmp_path / "j", 3).read().items()}
    assert rows == {SOURCES[number]: [number] * 3 for number in range(3)}


@pytest.mark.parametrize("kept", range(0, 76, 5))
def test_a_writer_killed_in_the_middle_of_a_row_loses_that_row_only(tmp_path, kept):
    journal = filled(tmp_path / "j", 2)
    size = journal.path.stat().st_size // 2
    os.truncate(journal.path, size + kept)
    assert list(journal.read()) == SOURCES[:1]
    journal.lock()
    journal.append(SOURCES[2], np.ones(3))
    journal.unlock()
    assert list(journal.read()) == [SOURCES[0], SOURCES[2]]


def test_a_flipped_bit_invalidates_its_row_only(tmp_path):
    journal = filled(tmp_path / "j", 3)
    content = bytearray(journal.path.read_bytes())
    content[len(content) // 2] ^= 1
    journal.path.write_bytes(content)
    assert list(journal.read()) == [SOURCES[0], SOURCES[2]]


def test_a_second_writer_does_not_get_the_lock_and_sees_the_process_of_the_first(tmp_path):
    first, second = Journal(tmp_path / "j", 3), Journal(tmp_path / "j", 3)
    assert first.lock()
    assert not second.lock()
    assert second.owner() == str(os.getpid())
    first.unlock()
    assert second.lock()


def test_the_lock_of_a_dead_owner_is_free(tmp_path):
    code = f"""
from pathlib import Path
from fne.store.journal import Journal
assert Journal(Path({str(tmp_path / "j")!r}), 3).lock()
print("locked", flush=True)
input()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout.readline() == "locked\n"
        journal = Journal(tmp_path / "j", 3)
        assert not journal.lock()
        assert journal.owner() == str(owner.pid)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert journal.lock()
        journal.unlock()
    finally:
        owner.kill()
        owner.communicate()


def test_a_full_disk_has_a_clear_message_and_finished_rows_stay(tmp_path):
    journal = filled(tmp_path / "j", 2)
    size = journal.path.stat().st_size
    journal.lock()
    said = f"{journal.path}: No space left on device; free some space and run again"
    with full_disk(size + 10), refused(said):
        journal.append(SOURCES[2], np.ones(3))
    assert list(journal.read()) == SOURCES[:2]
    journal.append(SOURCES[2], np.ones(3))
    journal.unlock()
    assert list(journal.read()) == SOURCES[:3]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to(path.with_name("mine"))])
def test_what_is_in_the_place_of_a_journal_is_named_and_never_written(tmp_path, make):
    (tmp_path / "mine").write_bytes(b"mine")
    journal = Journal(tmp_path / "aa.rows", features=3)
    make(journal.path)
    for use in (journal.read, journal.lock):
        with refused(f"remove it with `rm -r {journal.path}`"):
            use()
    assert (tmp_path / "mine").read_bytes() == b"mine"
