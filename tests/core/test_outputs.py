import os
from pathlib import Path

from fne.core.outputs import check_output
from tests.support.refusals import refused


def is_own(head: bytes) -> bool:
    return head.startswith(b"own")


def test_a_new_file_and_an_earlier_output_may_be_written(tmp_path):
    check_output(tmp_path / "new", "--to", is_own)
    (tmp_path / "old").write_bytes(b"own output")
    check_output(tmp_path / "old", "--to", is_own)


def test_what_is_not_an_earlier_output_is_not_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_bytes(b"mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "input").write_bytes(b"own output")
    (tmp_path / "link").symlink_to("input")
    for name, fault in {
        "thesis.txt": "did not write it, so it is not replaced; choose another name with --to",
        "pipe": "regular",
        "folder": "regular",
        "dangling": "does not exist",
        "input": "is an input of this command and is not replaced",
        "link": "is an input of this command and is not replaced",
    }.items():
        with refused(fault):
            check_output(tmp_path / name, "--to", is_own, tmp_path / "input")


def test_a_sentence_that_is_too_long_for_a_name_is_no_input(tmp_path):
    own = tmp_path / "own"
    own.write_bytes(b"own")
    check_output(own, "--sheet", lambda head: head == b"own", Path("a dog " * 99))
