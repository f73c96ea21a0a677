"""Files of pretrained word vectors, as other programs write them.

The formats are GloVe text (`word v1 … vd`), word2vec text and binary (which begin with a line `words
dimensions`), each of them plain or compressed by gzip, npz with the arrays `words` and `vectors`, and
safetensors with a tensor `vectors` and a JSON list `words` in its metadata. The content decides, not the
name. Pickles are never opened.

Memory holds a block of the file and the vectors of the words that are asked for, whatever the file claims
about its size. Values of other words are not looked at.
"""

import gzip
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open

from fne.core.errors import InputError
from fne.core.files import file_digest

FORMATS = (
    "GloVe text, word2vec text or binary (also gzipped), npz with 'words' and 'vectors', "
    "or safetensors with 'vectors'"
)

BLOCK = 2**20  # bytes that are read at once
# Text shrinks three times. What shrinks a hundred times was made to fill a disk or a memory.
MAX_RATIO = 100
MAX_LINE = 2**20  # bytes
MAX_WORD = 10_000  # bytes
MAX_DIMENSIONS = 10_000
MAX_BY_COLUMNS = 2**30  # bytes of an array that is stored column by column, and therefore read as a whole
# Vectors at the start of a file, from which the deviation of its values is estimated.
SAMPLE = 1000

PICKLE = re.compile(rb"\x80[\x02-\x05]")
HEADER = re.compile(rb"\d{1,19} \d{1,19}\s*")
NUMERIC = frozenset(b"0123456789+-.eE \r")
CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r")
# What this module and the libraries raise for a file that is damaged or something else.
FAULTS = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, TokenError, RuntimeError),
    *(MemoryError, OverflowError, NotImplementedError, RecursionError),
    *(zipfile.BadZipFile, zlib.error, SafetensorError),
)

Stream: TypeAlias = "io.BufferedReader[Any]"


@dataclass(frozen=True)
class Table:
    """Rows of a file, one after the other."""

    form: str
    dim: int
    rows: Iterator[tuple[bytes, bytes]]  # a word, and its values as written in the file
    parse: Callable[[bytes], np.ndarray]


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file for the words that were asked for."""

    path: Path
    digest: str
    form: str
    dim: int
    total: int  # the words of the file
    values: dict[str, np.ndarray]  # (dim) float32 of each word that was found
    repeated: int  # words that were asked for and came again; the first counts
    undecodable: int  # words that are not UTF-8; they match none
    deviation: float  # standard deviation of the values at the start of the file


def read_vector_file(path: Path, words: Collection[str]) -> VectorFile:
    """Read the vectors of some words, which must be spelled as in the file."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file of word vectors; set tokenize.vectors to a file, "
            "or to weights/random_words.yaml for none"
        )
    try:
        with ExitStack() as opened:
            table = _recognize(path, opened)
            if not 1 <= table.dim <= MAX_DIMENSIONS:
                raise ValueError(f"vectors of {table.dim:,} dimensions, not of 1 to {MAX_DIMENSIONS:,}")
            return VectorFile(path, file_digest(path), table.form, table.dim, *_collect(table, words))
    except FAULTS as error:
        reason = error.args[0] if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise InputError(f"{path}: {' '.join(reason.split())[:200]}; expected {FORMATS}") from None


def _collect(table: Table, words: Collection[str]) -> tuple[int, dict[str, np.ndarray], int, int, float]:
    """Return the fields of a `VectorFile` from `total` on."""
    wanted = {word.encode(errors="surrogatepass"): word for word in words}
    values: dict[str, np.ndarray] = {}
    sample: list[np.ndarray] = []
    total = repeated = undecodable = 0
    for word, raw in table.rows:
        total += 1
        undecodable += not (word.isascii() or _is_utf8(word))
        key = wanted.get(word)
        if key in values:
            repeated += 1
        elif key is not None or total <= SAMPLE:
            vector = _vector(table, total, word, raw)
            if key is not None:
                values[key] = vector
            if total <= SAMPLE:
                sample.append(vector)
    if not total:
        raise ValueError("it has no vectors")
    return total, values, repeated, undecodable, float(np.std(np.stack(sample), dtype=np.float64))


def _vector(table: Table, number: int, word: bytes, raw: bytes) -> np.ndarray:
    place = f"word {number:,}, {word[:40].decode(errors='replace')!r},"
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            vector = table.parse(raw).astype(np.float32)
    except ValueError:
        raise ValueError(f"{place} has a value that is not a number") from None
    if not np.isfinite(vector).all():
        raise ValueError(f"{place} has a value that is not finite")
    return vector


def _recognize(path: Path, opened: ExitStack) -> Table:
    stream: Stream = opened.enter_context(path.open("rb"))
    head = stream.peek(9)
    if PICKLE.match(head):
        raise ValueError(
            "a pickle, which is never opened; save it with KeyedVectors.save_word2vec_format, name that file"
        )
    if head.startswith(b"PK"):
        return _npz(opened.enter_context(zipfile.ZipFile(stream)), opened)
    if head[8:9] == b"{":
        return _safetensors(opened.enter_context(safe_open(path, "np")))
    if head.startswith(b"\x1f\x8b"):
        stream = io.BufferedReader(_Unpacked(stream, path.stat().st_size), BLOCK)
    return _text_or_binary(stream)


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, which may not expand far more than text does."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._file = gzip.GzipFile(fileobj=stream)
        self._left = MAX_RATIO * max(size, BLOCK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise ValueError(
                f"expands to more than {MAX_RATIO} times its size; unpack it and name the result"
            )
        return count


def _text_or_binary(stream: Stream) -> Table:
    first = _line(stream).removeprefix(b"\xef\xbb\xbf")
    if HEADER.fullmatch(first):
        count, dim = (int(each) for each in first.split())
        if 1 <= dim <= MAX_DIMENSIONS and not _is_text(stream.peek(BLOCK), dim):
            return Table("word2vec binary", dim, _binary(stream, count, dim), _parser(np.dtype("<f4")))
        return Table("word2vec text", dim, _counted(_lines(stream, dim, 2), count), _parse_text)
    fields = first.split()
    if b"\0" in first or len(fields) < 2 or _numbers_at_end(fields) < len(fields) - 1:
        found = first.strip()[:40].decode(errors="replace")
        raise ValueError(f"line 1: expected a word and its values, found {found!r}")
    opening = (fields[0], b" ".join(fields[1:]))
    dim = len(fields) - 1
    return Table("GloVe text", dim, itertools.chain([opening], _lines(stream, dim, 2)), _parse_text)


def _is_text(head: bytes, dim: int) -> bool:
    """Return whether the first row behind a header is text.

    A value and its blank take two bytes or more, so that as many bytes as below are one line of text,
    unless the line has too few values.
    """
    _, _, behind = head.partition(b" ")
    values = behind[: 2 * dim - 1]
    line = values.split(b"\n")[0]
    return bool(line.strip()) and NUMERIC.issuperset(line) and CONTROL.isdisjoint(values)


def _line(stream: Stream) -> bytes:
    line: bytes = stream.readline(MAX_LINE + 1)
    if len(line) > MAX_LINE:
        raise ValueError(f"a line is longer than {MAX_LINE:,} bytes")
    return line


def _lines(stream: Stream, dim: int, start: int) -> Iterator[tuple[bytes, bytes]]:
    for number in itertools.count(start):
        line = _line(stream)
        if not line:
            return
        line = line.rstrip(b"\r\n ")
        if line.count(b" ") == dim:
            word, _, raw = line.partition(b" ")
            yield word, raw
        elif line:
            # Some words have blanks: the last fields are the values.
            fields = line.split()
            found = _numbers_at_end(fields)
            if found != dim:
                raise ValueError(f"line {number:,}: {found:,} values where line 1 has {dim:,}")
            yield b" ".join(fields[:-dim]), b" ".join(fields[-dim:])


def _numbers_at_end(fields: list[bytes]) -> int:
    """Return how many fields at the end are numbers; the first field is a word."""
    count = 0
    for field in reversed(fields[1:]):
        try:
            _parse_text(field)
        except ValueError:
            break
        count += 1
    return count


def _parse_text(raw: bytes) -> np.ndarray:
    if b"_" in raw:  # Python reads 1_0 as 10
        raise ValueError("not a number")
    return np.array([float(each) for each in raw.split()])


def _counted(rows: Iterator[tuple[bytes, bytes]], count: int) -> Iterator[tuple[bytes, bytes]]:
    """Refuse a file that has more or fewer rows than it says."""
    found = 0
    for found, row in enumerate(rows, 1):  # noqa: B007  # used behind the loop
        yield row
    if found != count:
        raise ValueError(f"{found:,} of {count:,} words; fetch the file again")


def _binary(stream: Stream, count: int, dim: int) -> Iterator[tuple[bytes, bytes]]:
    size = 4 * dim
    buffer, position = b"", 0
    for number in range(count):
        blank = buffer.find(b" ", position, position + MAX_WORD)
        while blank < 0 or len(buffer) - blank <= size:
            if blank < 0 and len(buffer) - position >= MAX_WORD:
                raise ValueError(f"word {number + 1:,}: longer than {MAX_WORD:,} bytes")
            more = stream.read(BLOCK)
            if not more:
                raise ValueError(f"{number:,} of {count:,} words; fetch the file again")
            buffer, position = buffer[position:] + more, 0
            blank = buffer.find(b" ", 0, MAX_WORD)
        word, position = buffer[position:blank], blank + 1 + size
        yield word.lstrip(b"\n"), buffer[blank + 1 : position]
    if (buffer[position:] + stream.read(2)).strip(b"\n"):
        raise ValueError(f"more than {count:,} words; fetch the file again")


def _safetensors(file: Any) -> Table:
    words = json.loads((file.metadata() or {}).get("words", "null"))
    vectors = file.get_slice("vectors")
    count, dim = vectors.get_shape()
    if vectors.get_dtype() not in ("F16", "F32", "F64") or not isinstance(words, list) or len(words) != count:
        raise ValueError(
            f"'vectors' has {count:,} rows of {vectors.get_dtype()}, and 'words' in the metadata others"
        )
    step = max(1, BLOCK // max(1, 8 * dim))
    blocks = (vectors[start : min(count, start + step)] for start in range(0, count, step))
    encoded = (str(word).encode(errors="surrogatepass") for word in words)
    raw = (row.astype("<f8").tobytes() for block in blocks for row in block)
    return Table("safetensors", dim, zip(encoded, raw, strict=True), _parser(np.dtype("<f8")))


def _npz(archive: zipfile.ZipFile, opened: ExitStack) -> Table:
    words, vectors = (opened.enter_context(archive.open(f"{name}.npy")) for name in ("words", "vectors"))
    (count,), of_words, _ = _array_header(words)
    (rows, dim), of_vectors, by_columns = _array_header(vectors)
    if of_words.kind not in "SU" or not 0 < of_words.itemsize <= 4 * MAX_WORD:
        raise ValueError(f"'words' has type {of_words}; use np.array(words, dtype=str)")
    if of_vectors.kind != "f" or of_vectors.itemsize > 8:
        raise ValueError(f"'vectors' has type {of_vectors}; use float32")
    if rows != count:
        raise ValueError(f"{count:,} words for {rows:,} vectors")
    encoding = "utf-32-be" if of_words.str.startswith(">") else "utf-32-le"
    texts = (
        (text.decode(encoding, errors="replace").encode() if of_words.kind == "U" else text).rstrip(b"\0")
        for text in _blocks(words, of_words.itemsize, count)
    )
    if by_columns:
        raw = _rows_of_columns(vectors, count, dim, of_vectors)
    else:
        raw = _blocks(vectors, dim * of_vectors.itemsize, count)
    return Table("npz", dim, zip(texts, raw, strict=True), _parser(of_vectors))


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return the shape and type of an array, and whether it is stored column by column."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of objects is a pickle, which is never opened")
    if not all(type(each) is int and each >= 0 for each in shape):
        raise ValueError(f"shape {shape}")
    return shape, dtype, by_columns


def _blocks(stream: IO[bytes], size: int, count: int) -> Iterator[bytes]:
    """Yield `count` rows of `size` bytes."""
    per_block = max(1, BLOCK // max(1, size))
    for done in range(0, count, per_block):
        expected = min(per_block, count - done) * size
        content = stream.read(expected)
        if len(content) < expected:
            raise ValueError(f"less than {count:,} words; fetch the file again")
        yield from (content[start : start + size] for start in range(0, expected, size))


def _rows_of_columns(stream: IO[bytes], count: int, dim: int, dtype: np.dtype[Any]) -> Iterator[bytes]:
    """Yield the rows of an array that is stored column by column."""
    size = count * dim * dtype.itemsize
    if size > MAX_BY_COLUMNS:
        raise ValueError("'vectors' is stored column by column; save np.ascontiguousarray(vectors)")
    columns = np.frombuffer(stream.read(size), dtype).reshape(dim, count)
    return (row.tobytes() for row in columns.T)


def _parser(dtype: np.dtype[Any]) -> Callable[[bytes], np.ndarray]:
    return lambda raw: np.frombuffer(raw, dtype)


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True
