"""A fuzzer on the interface: whatever is asked, the server answers in its own form and reads no other file.

`FNE_FUZZ` raises the number of requests.
"""

import io
import os

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from PIL import Image
from pydantic import ValidationError

from fne.serve.app import api
from fne.serve.schemas import Problem

REQUESTS = int(os.environ.get("FNE_FUZZ", "150"))
PATHS = [each.path for each in api.routes]
SECRET = "a line that only params.yaml has"
WORDS = ["a red circle", "\x00", "';--", "\u202e", "\ud7ff", "💥" * 100, "0" * 64]
SHORT = "red red-circle.png ../params.yaml /etc/passwd %00 catalog folder conv1 test small -1 1e309 NaN {} <script>"
NAMES = ["text", "in", "k", "split", "tag", "image", "photo", "layer", "size"]
HEADERS = "origin cookie authorization range content-type expect if-none-match sec-fetch-site"
names = st.sampled_from(NAMES) | st.text(max_size=8)
values = st.sampled_from([*WORDS, *SHORT.split()]) | st.text(max_size=40) | st.integers().map(str)
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
headers = st.dictionaries(st.sampled_from(HEADERS.split()), printable, max_size=2)
fuzzed = settings(max_examples=REQUESTS, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(response):
    assert response.status_code < 500 or response.status_code == 503, response.text
    assert SECRET not in response.text
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    kind = response.headers.get("content-type", "")
    if response.status_code >= 400:
        Problem.model_validate_json(response.content)
    elif kind == "application/json":
        assert isinstance(response.json(), dict)


def valid(operation, response):
    if response.status_code == 200 and operation.response_model:
        try:
            operation.response_model.model_validate_json(response.content)
        except ValidationError as error:
            raise AssertionError(operation.path) from error


@fuzzed
@given(
    operation=st.sampled_from(api.routes), query=st.lists(st.tuples(names, values), max_size=5), extra=headers
)
def test_any_query_gets_an_answer_or_a_reason(client, operation, query, extra):
    path = operation.path.replace("{digest}", "0" * 64)
    response = client.request(min(operation.methods), path, params=query, headers=extra)
    check(response)
    valid(operation, response)


@fuzzed
@given(path=st.text(max_size=40) | st.tuples(st.sampled_from(PATHS), values).map("/".join))
def test_any_path_gets_an_answer_or_a_reason(client, live, path):
    (live.params.parent / "secret.txt").write_text(SECRET)
    quoted = "".join(f"%{byte:02x}" for byte in path.encode("utf-8", errors="replace"))
    check(client.get(f"/{quoted}"))


def pictures():
    found = []
    for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        buffer = io.BytesIO()
        Image.linear_gradient("L").resize((32, 24)).convert("RGB").save(buffer, form)
        found.append(buffer.getvalue())
    return found


@settings(fuzzed, max_examples=REQUESTS // 3)
@given(
    content=st.sampled_from(pictures()),
    edits=st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=4)), max_size=4),
    length=st.integers(1, 4000),
)
def test_any_damaged_photo_gets_an_answer_or_a_reason(client, content, edits, length):
    damaged = bytearray(content)
    for place, new in edits:
        damaged[place : place + len(new)] = new
    response = client.post("/api/photos", content=bytes(damaged[:length]))
    check(response)
    assert response.status_code in (200, 400)
