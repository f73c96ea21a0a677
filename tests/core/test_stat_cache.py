import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fne.core import stat_cache
from fne.core.stat_cache import CLOCK_RESOLUTION, FileState, VerifiedFiles, file_state
from tests.support.imports import ROOT


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """A file on a disk whose clock has a fine resolution."""
    monkeypatch.setattr(stat_cache, "CLOCK_RESOLUTION", 0)
    path = tmp_path / "shard"
    path.write_bytes(b"rows")
    return path


@pytest.fixture
def memory(tmp_path) -> Path:
    return tmp_path / "scratch/verified"


def test_another_time_size_or_file_is_another_state(file):
    found = {file_state(file).identity}
    os.utime(file, ns=(1, 10**9))
    found.add(file_state(file).identity)
    file.write_bytes(b"row")
    os.utime(file, ns=(1, 10**9))
    found.add(file_state(file).identity)
    Path(shutil.copy2(file, file.with_name("copy"))).replace(file)
    assert len(found | {file_state(file).identity}) == 4


@pytest.mark.parametrize(
    ("purpose", "value"), [("digest abc", "value with spaces"), ("abc", ""), ("name \udcff", "x")]
)
def test_a_value_is_found_again_for_the_same_state_and_purpose(file, memory, purpose, value):
    VerifiedFiles(memory).record(file_state(file), purpose, value)
    records = VerifiedFiles(memory)
    assert records.lookup(file_state(file), purpose) == value
    assert records.lookup(file_state(file), "digest abd") is None


def test_a_file_changed_in_place_is_detected_although_its_time_was_restored(file):
    before, status = file_state(file), file.stat()
    with file.open("r+b") as opened:
        opened.write(b"ROWS")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_mtime_ns, file.stat().st_size) == (status.st_mtime_ns, status.st_size)
    assert file_state(file).identity != before.identity


def test_two_files_that_were_swapped_are_detected(file, memory):
    other = file.with_name("other")
    other.write_bytes(b"sowr")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    records = VerifiedFiles(memory)
    for each in (file, other):
        records.record(file_state(each), str(each))
    file.rename(file.with_name("third"))
    other.rename(file)
    file.with_name("third").rename(other)
    assert [VerifiedFiles(memory).lookup(file_state(each), str(each)) for each in (file, other)] == [None] * 2


def test_a_file_that_changed_a_moment_ago_is_not_recorded(tmp_path, memory):
    path = tmp_path / "new"
    path.write_bytes(b"rows")
    os.utime(path, ns=(1, 1))  # its modification time is old, but not its status change time
    assert CLOCK_RESOLUTION == 2 * 10**9
    assert not file_state(path).settled
    VerifiedFiles(memory).record(file_state(path), "abc")
    assert not memory.exists()


def test_a_file_is_settled_after_the_resolution_of_the_clock_and_never_with_a_time_in_the_future(
    tmp_path, monkeypatch
):
    path = tmp_path / "new"
    path.write_bytes(b"rows")
    changed = max(path.stat().st_mtime_ns, path.stat().st_ctime_ns)
    for age, settled in ((CLOCK_RESOLUTION - 1, False), (CLOCK_RESOLUTION, True)):
        monkeypatch.setattr("time.time_ns", lambda age=age: changed + age)
        assert file_state(path).settled is settled
    os.utime(path, ns=(1, 10**19 // 2))
    assert not file_state(path).settled


def test_processes_that_record_at_once_lose_nothing(memory):
    code = (
        "import sys; from pathlib import Path; from fne.core.stat_cache import FileState, VerifiedFiles\n"
        "records = VerifiedFiles(Path(sys.argv[1]))\n"
        "for number in range(200): records.record(FileState(f'{sys.argv[2]}-{number}', True), 'abc')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with ThreadPoolExecutor() as pool:
        commands = [[sys.executable, "-c", code, str(memory), name] for name in "ab"]
        runs = [pool.submit(subprocess.run, each, env=environment, check=True) for each in commands]
        for run in runs:
            run.result()
    records = VerifiedFiles(memory)
    found = [
        records.lookup(FileState(f"{name}-{number}", True), "abc") for name in "ab" for number in range(200)
    ]
    assert found == [""] * 400


def test_every_damaged_line_is_ignored_and_damages_no_other(memory):
    states = [FileState(str(number), True) for number in range(3)]
    VerifiedFiles(memory).record(states[0], "p", "first")
    good = memory.read_bytes()
    for place in range(len(good)):
        for bit in (place % 8, 7 - place % 8):
            damaged = bytearray(good)
            damaged[place] ^= 1 << bit
            memory.write_bytes(damaged)
            found = VerifiedFiles(memory).lookup(states[0], "p")
            # A line break may become white space; the value is right or unknown.
            assert found in (None, "first")
    memory.write_bytes(good + b"\ncut of")
    VerifiedFiles(memory).record(states[1], "p", "second")
    records = VerifiedFiles(memory)
    assert [records.lookup(state, "p") for state in states] == ["first", "second", None]


@pytest.mark.parametrize("content", [b"", b"\xff\0", b"[]", b"a b c\n", b"{}\n" * 3])
def test_a_memory_of_another_format_is_ignored(memory, content):
    memory.parent.mkdir()
    memory.write_bytes(content)
    state = FileState("1", True)
    assert VerifiedFiles(memory).lookup(state, "p") is None
    VerifiedFiles(memory).record(state, "p", "x")
    assert VerifiedFiles(memory).lookup(state, "p") == "x"


def test_records_that_are_no_longer_used_are_dropped_when_they_are_most(memory):
    states = [FileState(str(number), True) for number in range(10)]
    records = VerifiedFiles(memory)
    for state in states:
        records.record(state, "p", state.identity)
    records = VerifiedFiles(memory)
    for state in states[:5]:
        records.lookup(state, "p")
    size = memory.stat().st_size
    records.compact()
    assert memory.stat().st_size == size
    records = VerifiedFiles(memory)
    for state in states[:4]:
        records.lookup(state, "p")
    records.compact()
    assert memory.stat().st_size < size / 2
    records = VerifiedFiles(memory)
    assert [records.lookup(state, "p") for state in states] == ["0", "1", "2", "3", *[None] * 6]


def test_without_a_memory_nothing_is_recorded(file):
    records = VerifiedFiles(None)
    records.record(file_state(file), "p", "x")
    records.compact()
    assert VerifiedFiles(None).lookup(file_state(file), "p") is None


def test_a_memory_that_cannot_be_written_costs_only_time(tmp_path, file):
    (tmp_path / "scratch").write_text("a file where the folder should be")
    records = VerifiedFiles(tmp_path / "scratch/verified")
    records.record(file_state(file), "p", "x")
    assert VerifiedFiles(tmp_path / "scratch/verified").lookup(file_state(file), "p") is None


def test_the_current_records_are_those_of_the_scratch_folder_in_use(tmp_path, file):
    stat_cache.current().record(file_state(file), "p")
    assert stat_cache.current().lookup(file_state(file), "p") is None
    stat_cache.use(tmp_path / "scratch")
    stat_cache.current().record(file_state(file), "p")
    assert (tmp_path / "scratch/verified").is_file()
    stat_cache.use(None)
    assert stat_cache.current().lookup(file_state(file), "p") is None


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to(path.with_name("mine"))])
def test_what_is_in_the_place_of_the_records_is_ignored(tmp_path, make):
    (tmp_path / "mine").write_bytes(b"mine")
    make(tmp_path / "records")
    records = VerifiedFiles(tmp_path / "records")
    state = FileState("1 2 3", settled=True)
    assert records.lookup(state, "purpose") is None
    records.record(state, "purpose", "value")
    assert VerifiedFiles(tmp_path / "records").lookup(state, "purpose") is None
    assert (tmp_path / "mine").read_bytes() == b"mine"
