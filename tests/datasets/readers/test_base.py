import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.errors import InputError
from fne.datasets.readers.base import parse_json, path_fault, read_json
from tests.support.refusals import refused


def fault(content: bytes, tmp_path) -> str:
    path = tmp_path / "dataset.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(path)
    assert caught.value.exit_code == 2
    return caught.value.message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": "\xff"}', "not valid UTF-8 at byte 7; save the file as UTF-8"),
        (b'{"a": NaN}', "invalid JSON: NaN is not a number; fix the file"),
        (b"[-Infinity]", "invalid JSON: -Infinity is not a number; fix the file"),
        (b"[1e999]", "invalid JSON: the number 1e999 is too large; fix the file"),
        (b'{"a": 1, "a": 2}', "invalid JSON: the key 'a' occurs twice in one object; fix the file"),
        (b"[" * 100_000, "invalid JSON: nested too deeply; fix the file"),
        (b'{"a":' * 100_000, "invalid JSON: nested too deeply; fix the file"),
        (b"9" * 5000, "invalid JSON: the number 99999999999999999999… is too large; fix the file"),
        (b"[9223372036854775808]", "invalid JSON: the number 9223372036854775808 is too large; fix the file"),
        (b'{"a":', "invalid JSON: Expecting value: line 1 column 6 (char 5); fix the file"),
        (b"", "invalid JSON: Expecting value: line 1 column 1 (char 0); fix the file"),
    ],
)
def test_what_the_standard_parser_accepts_wrongly_is_an_error_of_one_line(tmp_path, content, message):
    assert fault(content, tmp_path) == message


def test_a_byte_order_mark_and_the_largest_integer_are_accepted(tmp_path):
    path = tmp_path / "dataset.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [9223372036854775807, -1.5, null, "\\u00e9"]}')
    assert read_json(path) == {"a": [9223372036854775807, -1.5, None, "é"]}


def test_a_folder_in_place_of_the_file_is_an_input_error(tmp_path):
    with refused("cannot be read: Is a directory"):
        read_json(tmp_path)


@given(st.binary(max_size=40) | st.text('{}[]":,0e-NaItrufls \\', max_size=40).map(str.encode))
def test_any_bytes_are_parsed_or_refused_with_an_input_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_bytes(content)
    message = None
    try:
        read_json(path)
    except InputError as error:
        message = error.message
    assert message is None or (message.startswith(f"{path}: ") and "\n" not in message)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_ordinary_json_is_unchanged(value):
    assert parse_json(json.dumps(value), "here") == value


@pytest.mark.parametrize(
    "name", ["a.jpg", "val2014/a.jpg", "ä ö.jpg", "..jpg", "a..b/c...jpg", "a\nb.jpg", "C4:1.jpg"]
)
def test_ordinary_and_unusual_names_below_the_folder_are_accepted(name):
    assert path_fault(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("../a.jpg", "points outside the image folder"),
        ("a/../../x.jpg", "points outside the image folder"),
        ("a/..", "points outside the image folder"),
        ("a\\..\\b.jpg", "points outside the image folder"),
        ("/etc/passwd", "is an absolute path"),
        ("C:\\a.jpg", "is an absolute path"),
        ("\\\\server\\share\\a.jpg", "is an absolute path"),
        ("a\0.jpg", "contains a NUL character"),
        ("\ud800.jpg", "is not valid Unicode"),
        ("", "is empty"),
        (" ", "is empty"),
    ],
)
def test_names_outside_the_folder_and_empty_names_are_refused(name, fault):
    assert path_fault(name) == fault
