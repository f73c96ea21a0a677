import hashlib
import os

import pytest

from fne.core.stat_cache import VerifiedFiles, file_state
from fne.datasets import examine_images as module
from fne.datasets.examine_images import MISNAMED, examine, examine_all
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


@pytest.mark.parametrize(("form", "notes"), [("JPEG", ()), ("PNG", (MISNAMED,))])
def test_a_finding_holds_digest_and_size_and_notes_a_wrong_extension(tmp_path, form, notes):
    data = encoded(picture(width=20, height=10), form)
    (tmp_path / "a.jpg").write_bytes(data)
    finding = examine(tmp_path / "a.jpg")
    assert (finding.sha256, finding.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert (finding.width, finding.height, finding.notes, finding.reason) == (20, 10, notes, None)


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
    "content", [b"", b"\xff\0", b"[]", b'{"decoder": 1, "finding": 1, "entries": {"/a": 7}}']
)
def test_a_damaged_memory_is_ignored_and_used_again(tmp_path, seen, content):
    write_images(tmp_path, "a.jpg")
    memory = tmp_path / "memory"
    memory.write_bytes(content)
    for _ in range(2):
        examine_all([tmp_path / "a.jpg"], 0, memory)
    assert seen == ["a.jpg"]
    path = tmp_path / "a.jpg"
    VerifiedFiles(memory).record(file_state(path), module._purpose(path), '{"sha256": 7}')
    examine_all([path], 0, memory)  # a finding of another layout is ignored
    assert seen == ["a.jpg"] * 2


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
