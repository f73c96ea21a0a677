import hashlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fne.core.stat_cache import VerifiedFiles, file_state
from fne.datasets import examine_images as module
from fne.datasets.examine_images import MISNAMED, crash_proof_map, examine, examine_all
from tests.support.datasets import encoded, picture, write_images


@pytest.fixture
def seen(monkeypatch):
    """The names of the files that are really read, on a disk whose clock has a fine resolution."""
    monkeypatch.setattr("fne.core.stat_cache.CLOCK_RESOLUTION", 0)
    names = []

    def noting(path):
        names.append(path.name)
        return examine(path)

    monkeypatch.setattr(module, "examine", noting)
    return names


def test_a_finding_holds_digest_and_size(tmp_path):
    data = encoded(picture(width=20, height=10))
    (tmp_path / "a.jpg").write_bytes(data)
    finding = examine(tmp_path / "a.jpg")
    assert (finding.sha256, finding.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert (finding.width, finding.height, finding.notes, finding.reason) == (20, 10, (), None)


def test_a_wrong_extension_is_noted_and_the_content_decides(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(picture(), "PNG"))
    assert examine(tmp_path / "a.jpg").notes == (MISNAMED,)


def test_a_second_run_reads_nothing_again(tmp_path, seen):
    write_images(tmp_path, "a.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"text")
    paths = [tmp_path / name for name in ("a.jpg", "bad.jpg")]
    first = examine_all(paths, 0, tmp_path / "scratch/memory")
    assert seen == ["a.jpg", "bad.jpg"]
    assert examine_all(paths, 0, tmp_path / "scratch/memory") == first
    assert seen == ["a.jpg", "bad.jpg"]


def test_a_changed_file_is_read_again_and_a_missing_one_is_never_remembered(tmp_path, seen):
    write_images(tmp_path, "a.jpg", "b.jpg")
    paths = [tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg")]
    memory = tmp_path / "memory"
    assert examine_all(paths, 0, memory)[paths[2]].reason == "no such file"
    os.utime(paths[0], ns=(1, 1))
    write_images(tmp_path, "c.jpg")
    assert examine_all(paths, 0, memory)[paths[2]].reason is None
    assert seen == ["a.jpg", "b.jpg", "c.jpg", "a.jpg", "c.jpg"]


def test_two_images_that_were_swapped_are_read_again(tmp_path, seen):
    paths = [tmp_path / name for name in ("a.jpg", "b.jpg")]
    for number, path in enumerate(paths):
        path.write_bytes(encoded(picture(number), "BMP"))  # two files of one size
        os.utime(path, ns=(1, 1))
    first = examine_all(paths, 0, tmp_path / "memory")
    paths[0].rename(tmp_path / "c.jpg")
    paths[1].rename(paths[0])
    (tmp_path / "c.jpg").rename(paths[1])
    second = examine_all(paths, 0, tmp_path / "memory")
    assert [second[path].sha256 for path in paths] == [first[path].sha256 for path in paths[::-1]]
    assert seen == ["a.jpg", "b.jpg"] * 2


def test_an_image_that_was_written_a_moment_ago_is_read_again(tmp_path, seen, monkeypatch):
    monkeypatch.setattr("fne.core.stat_cache.CLOCK_RESOLUTION", 2 * 10**9)
    write_images(tmp_path, "a.jpg")
    for _ in range(2):
        examine_all([tmp_path / "a.jpg"], 0, tmp_path / "memory")
    assert seen == ["a.jpg", "a.jpg"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\0",
        b"[]",
        b'{"decoder": 1, "finding": 1, "entries": {"/a": 7}}',
    ],
)
def test_a_damaged_memory_is_ignored_and_used_again(tmp_path, seen, content):
    write_images(tmp_path, "a.jpg")
    memory = tmp_path / "memory"
    memory.write_bytes(content)
    for _ in range(2):
        examine_all([tmp_path / "a.jpg"], 0, memory)
    assert seen == ["a.jpg"]


def test_a_finding_of_another_layout_is_ignored(tmp_path, seen):
    write_images(tmp_path, "a.jpg")
    path = tmp_path / "a.jpg"
    VerifiedFiles(tmp_path / "memory").record(file_state(path), module._purpose(path), '{"sha256": 7}')
    examine_all([path], 0, tmp_path / "memory")
    assert seen == ["a.jpg"]


def test_findings_of_deleted_images_do_not_pile_up(tmp_path, seen):
    for number in range(5):
        write_images(tmp_path, f"{number}.jpg")
        examine_all([tmp_path / f"{number}.jpg"], 0, tmp_path / "memory")
    assert len((tmp_path / "memory").read_text().split("\n")) < 8


@pytest.mark.parametrize("version", ["DECODER_VERSION", "FINDING_VERSION"])
def test_another_version_of_decoder_or_finding_remembers_nothing(tmp_path, seen, monkeypatch, version):
    write_images(tmp_path, "a.jpg")
    examine_all([tmp_path / "a.jpg"], 0, tmp_path / "memory")
    monkeypatch.setattr(f"fne.datasets.examine_images.{version}", 99)
    examine_all([tmp_path / "a.jpg"], 0, tmp_path / "memory")
    assert seen == ["a.jpg", "a.jpg"]


def test_a_memory_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    write_images(tmp_path, "a.jpg")
    (tmp_path / "file").touch()
    findings = examine_all([tmp_path / "a.jpg"], 0, tmp_path / "file/memory")
    assert findings[tmp_path / "a.jpg"].reason is None


def test_an_interrupted_run_is_remembered(tmp_path, monkeypatch):
    write_images(tmp_path, "a.jpg", "b.jpg")

    def interrupted(path):
        if path.name == "b.jpg":
            raise KeyboardInterrupt
        return examine(path)

    monkeypatch.setattr("fne.core.stat_cache.CLOCK_RESOLUTION", 0)
    monkeypatch.setattr(module, "examine", interrupted)
    with pytest.raises(KeyboardInterrupt):
        examine_all([tmp_path / "a.jpg", tmp_path / "b.jpg"], 0, tmp_path / "memory")
    monkeypatch.setattr(module, "examine", pytest.fail)
    examine_all([tmp_path / "a.jpg"], 0, tmp_path / "memory")


def test_several_processes_find_the_same_as_one(tmp_path):
    write_images(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"text")
    paths = [tmp_path / name for name in ("a.jpg", "b.jpg", "bad.jpg")]
    assert examine_all(paths, 2, None) == examine_all(paths, 0, None)


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
from fne.datasets.examine_images import crash_proof_map

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
    monkeypatch.setattr("fne.datasets.examine_images.BATCH", 6)
    names = ["a", "b", "poison", "c", "d", "e", "f", "g"]
    results = dict(crash_proof_map(work, [Path(name) for name in names], workers=2))
    assert {path.name: result for path, result in results.items()} == {
        name: None if name == "poison" else name.upper() for name in names
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_one_worker_is_this_process(workers):
    seen = []
    assert list(crash_proof_map(seen.append, [Path("a"), Path("b")], workers)) == [
        (Path("a"), None),
        (Path("b"), None),
    ]
    assert seen == [Path("a"), Path("b")]


def test_no_files_are_no_work():
    assert list(crash_proof_map(str, [], workers=2)) == []


def test_ctrl_c_stops_the_parent_and_never_a_process_of_its_own(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.stdout == "2\n"
    assert run.stderr.count("Traceback") == 1
    assert run.stderr.endswith("KeyboardInterrupt\n")
