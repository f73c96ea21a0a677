import gzip
import hashlib
import io
import json
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fne.core.errors import InputError
from fne.text import word_vector_files
from fne.text.word_vector_files import SAMPLE, VectorFile, read_vector_file
from tests.support.imports import ROOT
from tests.support.vectors import WRITERS, glove, gzipped, npz, safetensors, word2vec_binary, word2vec_text

WORDS = [
    "dog",
    "é",
    "the",
    "T-shirt",
    "犬",
    "\U0001f415",
    "...",
    "</s>",
    *(f"w{number}" for number in range(42)),
]
VECTORS = {word: [number + 0.5, -number, 0.25, number / 8] for number, word in enumerate(WORDS)}


def zipped(content):
    """Without a time stamp: test ids must be the same in all workers."""
    return gzip.compress(content, mtime=0)


def vectors_or_fault(path, words=("dog",)) -> VectorFile | str:
    """Return what was read, or the message without its place."""
    try:
        return read_vector_file(path, words)
    except InputError as error:
        message = error.message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def fault(path) -> str:
    found = vectors_or_fault(path)
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_vectors_that_were_written_whatever_the_name(tmp_path, name):
    path = tmp_path / "vectors"
    WRITERS[name](path, VECTORS)
    found = read_vector_file(path, ["犬", *WORDS[5:], "dog", "zebra"])
    assert found.values.keys() == {*WORDS[4:], "dog"}
    assert all(found.values[word].tolist() == VECTORS[word] for word in found.values)
    assert all(each.dtype == np.float32 for each in found.values.values())
    assert (found.dim, found.total, found.repeated, found.undecodable) == (4, 50, 0, 0)
    assert found.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.deviation == pytest.approx(np.std([*VECTORS.values()]))
    assert name.lower().startswith(found.form.lower().split()[0])
    for suffix in (".bin", ".txt", ".npz", ".gz", ".pkl"):
        named = path.rename(path.with_suffix(suffix))
        assert read_vector_file(named, WORDS).form == found.form
        path = named


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_cut_short_anywhere_is_refused_or_has_fewer_words(tmp_path, name):
    path, cut = tmp_path / "vectors", tmp_path / "cut"
    WRITERS[name](path, VECTORS)
    content = path.read_bytes()
    chance = random.Random(0)
    for length in {0, 1, 5, 9, len(content) - 40, *(chance.randrange(len(content)) for _ in range(30))}:
        cut.write_bytes(content[:length])
        found = vectors_or_fault(cut, WORDS)
        if not isinstance(found, str):
            # GloVe's text does not say how long it is; zeros may follow gzip's members.
            assert name.startswith("glove") or length >= len(content) - 40
            assert found.total <= 50


@pytest.mark.parametrize("name", WRITERS)
def test_flipped_bits_are_one_line_or_nothing(tmp_path, name):
    path, chance = tmp_path / "vectors", random.Random(0)
    WRITERS[name](path, VECTORS)
    original = path.read_bytes()
    for _ in range(90):
        content = bytearray(original)
        for _ in range(chance.randrange(1, 5)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        assert vectors_or_fault(path, WORDS)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from(
        [b"", b"\x1f\x8b\x08", b"PK\x03\x04", b"3 2\n", b"dog 1 2\n", b"\x20" + b"\0" * 7 + b"{"]
    ),
    content=st.binary(max_size=200),
)
def test_random_bytes_never_raise_anything_else(tmp_path, start, content):
    path = tmp_path / "vectors"
    path.write_bytes(start + content)
    assert vectors_or_fault(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1: expected a word"),
        (b"dog 1 2\ncat 3 4 5\n", "line 2: 3 values where line 1 has 2"),
        (b"dog 1 2\ncat 3\n", "line 2: 1 values where line 1 has 2"),
        (b"dog 1 2\n\ncat 3\n", "line 3: 1 values where line 1 has 2"),
        (b"2 3\ndog 1 2 3\ncat 1 2\n", "line 3: 2 values where line 1 has 3"),
        (b"2 3\ndog 1 2\ncat 1 2 3\n", "line 2: 2 values where line 1 has 3"),
        (b"dog 1 nan\n", "word 1, 'dog', has a value that is not finite"),
        (b"cat 1 2\ndog 1 inf\n", "word 2, 'dog', has a value that is not finite"),
        (b"cat 1 2\ndog 1 1e39\n", "word 2, 'dog', has a value that is not finite"),
        (b"cat 1 2\ndog 1 x\n", "word 2, 'dog', has a value that is not a number"),
        (b"cat 1 2\ndog 1 1_0\n", "word 2, 'dog', has a value that is not a number"),
        (b"dog\n", "line 1: expected a word and its values, found 'dog'"),
        (b"<html><body>404 not found</body></html>\n", "line 1: expected a word and its values"),
        (b"cat 1 2\ndog 1 2".decode().encode("utf-16"), "line 1: expected a word"),
        (b"5 1000000000\ndog 1 2\n", "vectors of 1,000,000,000 dimensions, not of 1 to 10,000"),
        (b"5 0\n", "vectors of 0 dimensions"),
        (b"0 5\n", "it has no vectors"),
        (b"3 2\ndog 1 2\ncat 1 2\n", "2 of 3 words; fetch the file again"),
        (b"1 2\ndog 1 2\ncat 1 2\n", "2 of 1 words"),
        (b"1 2\ndog " + b"\0" * 8 + b"cat ", "more than 1 words"),
        (b"9000000000 2\ndog " + b"\0" * 8 + b"\ncat \0\0", "1 of 9,000,000,000 words"),
        (b"2 2\n" + b"\x01" * 20000, "word 1: longer than 10,000 bytes"),
        (b"dog 1 2\n" + b"1 " * 600_000, "a line is longer than 1,048,576 bytes"),
        (b"x" * 2_000_000, "a line is longer than 1,048,576 bytes"),
        (pickle.dumps({"dog": [1.0]}), "a pickle, which is never opened; save it with KeyedVectors"),
        (b"PAR1....", ""),
        (b"\x93NUMPY\x01\x00", ""),
        (b"PK\x05\x06" + b"\0" * 18, "There is no item named 'words.npy'"),
        (zipped(zipped(b"dog 1 2\n")), ""),
        (zipped(b"dog 1 2\n")[:-3], "Compressed file ended"),
        (zipped(b"dog 1 2\n") + b"garbage", "Not a gzipped file"),
    ],
)
def test_a_fault_is_refused_with_its_reason(tmp_path, content, reason):
    (tmp_path / "vectors").write_bytes(content)
    assert fault(tmp_path / "vectors").startswith(reason)


def test_a_missing_file_says_what_to_set(tmp_path):
    expected = "no such file of word vectors; set tokenize.vectors to a file, or to weights/random_words.yaml for none"
    assert fault(tmp_path / "none.txt") == expected
    assert fault(tmp_path) == expected


def array(value) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=True)
    return file.getvalue()


def archive(path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "."), content)


MATRIX = np.ones((2, 3), np.float32)
NAMES = np.array(["dog", "cat"])


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (array(np.array(["dog", "cat"], object)), array(MATRIX), "an array of objects is a pickle"),
        (array(NAMES), array(MATRIX[:1]), "2 words for 1 vectors"),
        (array(NAMES), array(np.ones((2, 3), int)), "'vectors' has type int64"),
        (array(np.arange(2)), array(MATRIX), "'words' has type int64"),
        (array(np.array([["dog"]])), array(MATRIX), "too many values"),
        (array(NAMES)[:40], array(MATRIX), ""),
        (b"nothing", array(MATRIX), "magic string"),
    ],
)
def test_a_fault_of_an_npz_is_refused_with_its_reason(tmp_path, words, vectors, message):
    path = tmp_path / "x.npz"
    archive(path, words__npy=words, vectors__npy=vectors)
    assert message in fault(path)


def test_archives_of_other_things_are_refused(tmp_path):
    archive(tmp_path / "model.pt", data__pkl=b"")
    archive(tmp_path / "glove.zip", glove__txt=b"dog 1 2")
    for name in ("model.pt", "glove.zip"):
        assert fault(tmp_path / name).startswith(
            "There is no item named 'words.npy' in the archive; expected"
        )


def test_an_array_that_is_stored_by_columns_is_read(tmp_path, monkeypatch):
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    words, vectors = array(np.array([*"abcd"])), array(np.asfortranarray(matrix))
    archive(tmp_path / "x.npz", words__npy=words, vectors__npy=vectors)
    found = read_vector_file(tmp_path / "x.npz", "abcd")
    assert [found.values[word].tolist() for word in "abcd"] == matrix.tolist()
    archive(tmp_path / "y.npz", words__npy=words, vectors__npy=vectors[:-4])
    assert "cannot reshape" in fault(tmp_path / "y.npz")
    monkeypatch.setattr(word_vector_files, "MAX_BY_COLUMNS", 12)
    assert fault(tmp_path / "x.npz").startswith("'vectors' is stored column by column; save np.ascontiguous")


def test_an_npz_that_claims_more_than_it_has_is_refused(tmp_path):
    longer = array(MATRIX).replace(b"'shape': (2, 3), }      ", b"'shape': (2000000, 3), }")
    names = array(NAMES).replace(b"'shape': (2,), }      ", b"'shape': (2000000,), }")
    archive(tmp_path / "x.npz", words__npy=names, vectors__npy=longer)
    assert fault(tmp_path / "x.npz").startswith("less than 2,000,000 words; fetch the file again")


def tensors(header: dict, data: bytes = b"\0" * 24) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
NAMED = {"words": json.dumps(["dog", "cat"])}


@pytest.mark.parametrize(
    "content",
    [
        tensors({"__metadata__": NAMED, "vectors": GOOD}, b"\0" * 20),
        tensors({"vectors": GOOD}),
        tensors({"__metadata__": {"words": "dog"}, "vectors": GOOD}),
        tensors({"__metadata__": {"words": '["a"]'}, "vectors": GOOD}),
        tensors({"__metadata__": NAMED, "vectors": GOOD | {"dtype": "I8"}}),
        tensors({"__metadata__": NAMED, "vectors": GOOD | {"dtype": "BF16"}}),
        tensors({"__metadata__": NAMED, "vectors": GOOD | {"shape": [2, -3]}}),
        tensors({"__metadata__": NAMED, "vectors": GOOD | {"shape": [2, 10**9]}}),
        tensors({"__metadata__": NAMED, "vectors": GOOD | {"shape": "23"}}),
        tensors({"__metadata__": NAMED, "vectors": GOOD | {"shape": [6]}}),
        tensors({"__metadata__": NAMED, "rows": GOOD}),
        tensors({"__metadata__": NAMED, "vectors": GOOD})[:60],
        struct.pack("<Q", 20) + b"{" * 20,
        struct.pack("<Q", 90000) + b'{"a":' * 18000,
    ],
)
def test_faults_of_safetensors_are_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    assert fault(tmp_path / "x").endswith("; expected " + word_vector_files.FORMATS)


DOG_CAT = {"dog": [1, 2], "cat": [3, 4]}


@pytest.mark.parametrize(
    ("content", "vectors"),
    [
        (b"dog 1 2\n. . . 3 4\nat name@domain.com 5 6\n", {". . .": [3, 4], "at name@domain.com": [5, 6]}),
        (b"\xef\xbb\xbfdog 1 2\r\ncat 3 4\r\n", DOG_CAT),
        (b"2 2\ndog 1 2 \ncat  3 4 \n\n", DOG_CAT),
        (b"dog 1 2\ncat 3 4", DOG_CAT),
    ],
)
def test_words_may_have_blanks_and_ends_of_lines_do_not_matter(tmp_path, content, vectors):
    (tmp_path / "x").write_bytes(content)
    found = read_vector_file(tmp_path / "x", [*vectors, "."])
    assert {word: row.tolist() for word, row in found.values.items()} == vectors


def test_the_first_of_equal_words_counts(tmp_path):
    (tmp_path / "x").write_bytes(b"dog 1 2\ncat 3 4\ndog 5 6\ncat 7 8\n")
    found = read_vector_file(tmp_path / "x", ["dog"])
    assert (found.values["dog"].tolist(), found.repeated, found.total) == ([1, 2], 1, 4)


def test_words_that_are_not_utf8_match_none_and_are_counted(tmp_path):
    (tmp_path / "x").write_bytes(b"caf\xe9 1 2\ndog 3 4\n")
    found = read_vector_file(tmp_path / "x", ["dog", "café", "caf\ufffd"])
    assert (found.values.keys(), found.undecodable) == ({"dog"}, 1)


def test_values_of_other_words_are_not_looked_at_beyond_the_sample(tmp_path):
    lines = [f"w{number} 1 2" for number in range(SAMPLE)] + ["cat nan x", "dog 3 4"]
    (tmp_path / "x").write_text("\n".join(lines))
    assert read_vector_file(tmp_path / "x", ["dog"]).values["dog"].tolist() == [3, 4]


@pytest.mark.parametrize("write", [word2vec_binary, word2vec_text])
def test_a_first_value_that_begins_with_the_byte_of_a_newline_is_no_end_of_a_line(tmp_path, write):
    [value] = np.frombuffer(b"\x0a\x0a\x0a\x3f", "<f4").tolist()
    write(tmp_path / "x", {"dog": [value] * 30, "cat": [1.0] * 30})
    assert read_vector_file(tmp_path / "x", ["dog"]).values["dog"].tolist() == [value] * 30


# Prints the peak memory in MB, without what the imports take.
MEASURED = """
import resource, sys
from pathlib import Path
from fne.core.errors import InputError
from fne.text.word_vector_files import read_vector_file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    found = read_vector_file(Path(sys.argv[1]), ["w7", "w17000"])
    print(len(found.values))
except InputError as error:
    print(error.message.split(": ")[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def memory(path) -> tuple[str, int]:
    printed = subprocess.check_output([sys.executable, "-c", MEASURED, str(path)], cwd=ROOT, text=True)
    answer, megabytes = printed.splitlines()
    return answer, int(megabytes)


@pytest.mark.parametrize("write", [glove, word2vec_binary, npz, gzipped(glove)])
def test_memory_does_not_grow_with_the_file(tmp_path, write):
    row = np.linspace(0, 1, 500).round(1).tolist()
    write(tmp_path / "x", {f"w{number}": row for number in range(20_000)})  # 40 MB as float32 or as text
    answer, megabytes = memory(tmp_path / "x")
    assert answer == "2"
    assert megabytes < 25


def test_a_gzip_bomb_is_refused_within_bounded_memory(tmp_path):
    with gzip.open(tmp_path / "x", "wb") as file:
        for _ in range(150):
            file.write((b"w" + b" 0" * 5000 + b"\n") * 100)
    answer, megabytes = memory(tmp_path / "x")
    assert answer.startswith("expands to more than 100 times its size; unpack it and name the result")
    assert megabytes < 25


def test_safetensors_without_metadata_words_is_refused(tmp_path):
    safetensors(tmp_path / "x", VECTORS)
    content = (tmp_path / "x").read_bytes().replace(b'"words"', b'"wards"')
    (tmp_path / "x").write_bytes(content)
    assert "'words' in the metadata" in fault(tmp_path / "x")
