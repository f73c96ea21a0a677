import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.errors import InputError
from fne.datasets.strict import parse_json, read_json


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
        (b'{"a": NaN}', "not usable JSON: NaN is not a number; fix the file"),
        (b"[-Infinity]", "not usable JSON: -Infinity is not a number; fix the file"),
        (b"[1e999]", "not usable JSON: the number 1e999 is too large; fix the file"),
        (b'{"a": 1, "a": 2}', "not usable JSON: the key 'a' stands twice in one object; fix the file"),
        (b"[" * 100_000, "not usable JSON: nested too deeply; fix the file"),
        (b'{"a":' * 100_000, "not usable JSON: nested too deeply; fix the file"),
        (b"9" * 5000, "not usable JSON: the number 99999999999999999999… is too large; fix the file"),
        (
            b"[9223372036854775808]",
            "not usable JSON: the number 9223372036854775808 is too large; fix the file",
        ),
        (b'{"a":', "not usable JSON: Expecting value: line 1 column 6 (char 5); fix the file"),
        (b"", "not usable JSON: Expecting value: line 1 column 1 (char 0); fix the file"),
    ],
)
def test_what_the_standard_parser_lets_pass_is_an_error_of_one_line(tmp_path, content, message):
    assert fault(content, tmp_path) == message


def test_a_byte_order_mark_and_the_largest_integer_are_fine(tmp_path):
    path = tmp_path / "dataset.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [9223372036854775807, -1.5, null, "\\u00e9"]}')
    assert read_json(path) == {"a": [9223372036854775807, -1.5, None, "é"]}


def test_a_folder_in_place_of_the_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_json(tmp_path)


@given(st.binary(max_size=40) | st.text('{}[]":,0e-NaItrufls \\', max_size=40).map(str.encode))
def test_any_bytes_are_parsed_or_refused_but_nothing_else_happens(tmp_path_factory, content):
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
def test_ordinary_json_comes_back_unchanged(value):
    assert parse_json(json.dumps(value), "here") == value
