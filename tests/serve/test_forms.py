import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.errors import InputError
from fne.serve.forms import form_file

TYPE = "multipart/form-data; boundary=------------------------0123abc"
LINE = b"--------------------------0123abc"
FIELD = b'\r\nContent-Disposition: form-data; name="file"; filename="../../p.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'


def form(*contents):
    return b"".join(LINE + FIELD + content + b"\r\n" for content in contents) + LINE + b"--\r\n"


@given(content=st.binary().filter(lambda content: LINE not in content))
def test_the_file_of_a_form_is_returned_byte_by_byte(content):
    assert form_file(TYPE, form(content)) == content
    assert form_file('Multipart/Form-Data; boundary="a b"', b"--a b\r\nx: y\r\n\r\n1\r\n--a b--") == b"1"


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("multipart/form-data", form(b"x"), "names no boundary"),
        ("multipart/form-data; boundary=", form(b"x"), "names no boundary"),
        (f"multipart/form-data; boundary={'x' * 71}", form(b"x"), "names no boundary"),
        ("multipart/form-data; boundary=\u00fc", form(b"x"), "names no boundary"),
        (f"{TYPE}; boundary=other", form(b"x"), "names no boundary"),
        (TYPE, b"", "not complete"),
        (TYPE, b"an image", "not complete"),
        (TYPE, form(b"x")[:-40], "not complete"),
        (TYPE, LINE * 100_000, "not complete"),
        (TYPE, LINE + b"\r\nX: " + b"x" * 5000 + FIELD + b"x\r\n" + LINE + b"--", "not complete"),
        (TYPE, form(), "not complete"),
        (TYPE, form(b"x", b"y"), "several fields"),
        (TYPE, form(*[b""] * 10_000), "several fields"),
        (TYPE, form(b"x") + b"more", "several fields"),
    ],
)
def test_any_other_form_is_refused(kind, body, reason):
    with pytest.raises(InputError) as refused:
        form_file(kind, body)
    assert reason in refused.value.message


@given(parameters=st.text(), body=st.binary())
def test_no_form_raises_anything_else(parameters, body):
    try:
        form_file(f"multipart/form-data;{parameters}", body)
        form_file(TYPE, LINE + b"\r\n" + body)
    except InputError:
        pass
