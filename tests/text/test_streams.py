import gzip
import hashlib
import io

import pytest

from fne.core.errors import InputError
from fne.text.streams import BLOCK, GzipReader, HashingReader

CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))


def zipped(content):
    """Without a time stamp: test ids must be the same in all workers."""
    return gzip.compress(content, mtime=0)


def unpacked(content: bytes) -> bytes:
    stream = io.BufferedReader(io.BytesIO(content))
    return io.BufferedReader(GzipReader("x.gz", stream), BLOCK).read()


def test_the_digest_is_that_of_the_bytes_that_were_read():
    hashing = HashingReader(io.BytesIO(CONTENT))
    stream = io.BufferedReader(hashing, 100)
    assert stream.readline() == b"line 0\n"
    assert stream.read() == CONTENT[7:]
    assert hashing.digest.hexdigest() == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_members_and_zeros_behind_them_are_read_as_one(parts):
    size = len(CONTENT) // parts + 1
    members = [zipped(CONTENT[start : start + size]) for start in range(0, len(CONTENT), size)]
    assert unpacked(b"".join(members) + b"\0" * 100_000) == CONTENT
    assert unpacked(b"\0\0".join(members)) == CONTENT


def test_a_buffer_is_filled_also_across_members():
    stream = io.BufferedReader(io.BytesIO(zipped(b"ab") + zipped(b"") + zipped(b"cd")))
    buffer = bytearray(4)
    assert GzipReader("x.gz", stream).readinto(buffer) == 4
    assert buffer == b"abcd"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(CONTENT)[:-4], "x.gz: its compressed content is cut short; fetch the file again"),
        (zipped(CONTENT)[:-8] + b"\1" * 8, "x.gz: damaged (Error -3 while decompressing data: incorrect data check)"),
        (zipped(CONTENT) + b"rest", "x.gz: damaged (Error -3 while decompressing data: incorrect header check)"),
        (zipped(b"\0" * 110 * BLOCK), "x.gz: expands to more than 100 times its size; unpack it and name the result"),
    ],
)  # fmt: skip
def test_damage_and_bombs_are_refused(content, message):
    with pytest.raises(InputError) as caught:
        unpacked(content)
    assert caught.value.message.startswith(message)
