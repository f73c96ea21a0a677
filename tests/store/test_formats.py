import json

import pytest

from fne.core.errors import InputError
from fne.store.formats import (
    Format,
    is_sealed,
    parse_document,
    read_bytes,
    seal_bytes,
    seal_text,
    unseal_bytes,
)

FORM = Format("fne-test", 2)


def sealed(**entries) -> bytes:
    return seal_text(json.dumps(FORM.header() | entries, indent=1)).encode()


def fault(content: bytes, path) -> str:
    with pytest.raises(InputError) as caught:
        parse_document(path, content, FORM, "make it again")
    return caught.value.message


def test_a_sealed_text_stays_json(tmp_path):
    document = parse_document(tmp_path, sealed(word="é"), FORM, "")
    assert {**document, "sha256": ""} == {"sha256": "", "format": "fne-test", "version": 2, "word": "é"}


def test_every_flipped_bit_of_a_sealed_text_is_refused(tmp_path):
    content = sealed(word="a")
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            assert fault(bytes(changed), tmp_path).startswith(f"{tmp_path}: ")


def test_every_truncation_of_a_sealed_text_is_refused(tmp_path):
    content = sealed(word="a")
    assert all(fault(content[:size], tmp_path).endswith("; make it again") for size in range(len(content)))


def test_a_text_of_the_first_version_needs_no_seal(tmp_path):
    assert not is_sealed(b"{}")
    older = json.dumps(FORM.header() | {"version": 1}).encode()
    assert parse_document(tmp_path, older, FORM, "")["version"] == 1


def test_a_text_without_its_seal_is_refused(tmp_path):
    content = json.dumps(FORM.header()).encode()
    assert fault(content, tmp_path) == f"{tmp_path}: damaged (its seal is missing); make it again"


def test_a_newer_version_and_another_format_are_refused_by_name(tmp_path):
    newer = seal_text(json.dumps(FORM.header() | {"version": 3})).encode()
    other = seal_text(json.dumps({"format": "fne-other", "version": 1})).encode()
    assert fault(newer, tmp_path) == (
        f"{tmp_path}: needs a version of fne that reads fne-test 3; this one reads fne-test up to 2"
    )
    assert fault(other, tmp_path) == (
        f"{tmp_path}: needs a version of fne that reads fne-other 1; this one reads fne-test up to 2"
    )


def test_deeply_nested_json_is_refused_and_crashes_nothing(tmp_path):
    assert fault(b"[" * 200_000, tmp_path).startswith(f"{tmp_path}: damaged (")


def test_a_seal_at_the_end_covers_all_before_it(tmp_path):
    content = seal_bytes(b"content")
    assert unseal_bytes(tmp_path, content, "") == b"content"
    for damaged in (content[:-1], content[1:], b"", b"content", content.replace(b"t", b"s", 1)):
        with pytest.raises(InputError, match="damaged or not one of ours; make it again"):
            unseal_bytes(tmp_path, damaged, "make it again")


def test_what_cannot_be_read_is_said_in_a_line(tmp_path):
    with pytest.raises(InputError, match=r"x: no such file; run `dvc repro`, or `dvc pull` to fetch it"):
        read_bytes(tmp_path / "x")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        read_bytes(tmp_path)
