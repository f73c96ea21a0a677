import hashlib
import os

import pytest

from fne.core.files import (
    MAX_DEPTH,
    file_digest,
    files_in,
    read_bytes,
    replacing,
    replacing_folder,
    write_text,
)
from tests.support.refusals import refused


@pytest.mark.parametrize("folder", [False, True])
def test_a_failed_writer_leaves_the_old_file_or_folder_and_no_temporary_one(tmp_path, folder):
    def write(text: str) -> None:
        with (replacing_folder if folder else replacing)(tmp_path / "a") as temporary:
            (temporary / "row" if folder else temporary).write_text(text)
            if text == "half":
                raise RuntimeError

    write("old")
    with pytest.raises(RuntimeError):
        write("half")
    assert (tmp_path / "a/row" if folder else tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_linked_cache_is_replaced_not_overwritten(tmp_path):
    cached, path = tmp_path / "cached", tmp_path / "linked"
    cached.write_text("shared")
    path.hardlink_to(cached)
    write_text(path, "new")
    assert (cached.read_text(), path.read_text()) == ("shared", "new")


def test_the_files_of_a_killed_writer_are_removed(tmp_path):
    left = tmp_path / f".store.{2**22 + 1}.tmp"  # above the largest process id there can be
    left.mkdir()
    (left / "half").write_text("")
    with replacing_folder(tmp_path / "store") as temporary:
        (temporary / "row").write_text("new")
    assert os.listdir(tmp_path) == ["store"]
    assert os.listdir(tmp_path / "store") == ["row"]


def test_the_files_of_a_running_writer_stay(tmp_path):
    theirs = tmp_path / f".store.{os.getppid()}.tmp"
    theirs.mkdir()
    with replacing_folder(tmp_path / "store"):
        assert theirs.exists()


def test_text_is_utf8_with_unix_line_ends_and_its_digest_is_sha256(tmp_path):
    write_text(tmp_path / "a.txt", "é\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa9\n"
    assert file_digest(tmp_path / "a.txt") == hashlib.sha256(b"\xc3\xa9\n").hexdigest()


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("file/a.txt: cannot be written (File exists); choose another place"):
        write_text(tmp_path / "file/a.txt", "")


def test_a_folder_is_never_replaced_by_a_file_nor_read_as_one(tmp_path):
    (tmp_path / "folder").mkdir()
    with refused("folder: cannot be written (Is a directory); choose another place"):
        write_text(tmp_path / "folder", "")
    for read in (file_digest, read_bytes):
        with refused("folder: cannot be read (Is a directory)"):
            read(tmp_path / "folder")


@pytest.mark.parametrize("read", [file_digest, read_bytes])
def test_a_missing_file_says_how_to_get_it(tmp_path, read):
    with refused(f"{tmp_path}/a: no such file; run `dvc repro`, or `dvc pull` to fetch it"):
        read(tmp_path / "a")


def test_folders_that_are_nested_too_deeply_are_refused_with_the_limit(tmp_path):
    deep = tmp_path.joinpath(*["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    for folder in (tmp_path, deep):
        (folder / "file").touch()
    assert len(list(files_in(tmp_path))) == 2
    (deep / "d").mkdir()
    with refused(f"more than {MAX_DEPTH} folders are nested here, which is the limit"):
        list(files_in(tmp_path))
