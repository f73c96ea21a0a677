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


def test_a_file_of_the_user_is_not_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_bytes(b"mine")
    with refused("did not write it, so it is not replaced; choose another name with --to"):
        check_output(tmp_path / "thesis.txt", "--to", is_own)


def test_an_input_is_not_replaced_under_any_of_its_names(tmp_path):
    (tmp_path / "input").write_bytes(b"own output")
    (tmp_path / "link").symlink_to("input")
    for name in ("input", "link"):
        with refused("is an input of this command and is not replaced"):
            check_output(tmp_path / name, "--to", is_own, tmp_path / "input")


def test_a_pipe_a_folder_and_a_dangling_link_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name, fault in (("pipe", "regular"), ("folder", "regular"), ("link", "does not exist")):
        with refused(fault):
            check_output(tmp_path / name, "--to", is_own)


def test_a_sentence_that_is_too_long_for_a_name_is_no_input(tmp_path):
    own = tmp_path / "own"
    own.write_bytes(b"own")
    check_output(own, "--sheet", lambda head: head == b"own", Path("a dog " * 99))
