"""Files of pretrained word vectors, as other programs write them.

The formats are GloVe text (`word v1 … vd`), word2vec text and binary (which begin with a line `words
dimensions`), each of them plain or compressed by gzip, npz with the arrays `words` and `vectors`, and
safetensors with a tensor `vectors` and a JSON list `words` in its metadata. A file is recognized by its
content, not by its name. Pickles are never opened.

A file is read once, from its first to its last byte: the digest is that of the bytes that were parsed. Memory
holds a block of the file and the vectors of the words that are asked for, whatever the file claims about its
size. Values of other words are not looked at.
"""

import io
import itertools
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from fne.core.errors import InputError
from fne.text.streams import BLOCK, GzipReader, HashingReader, Stream

FORMATS = (
    "GloVe text, word2vec text or binary (also gzipped), npz with 'words' and 'vectors', "
    "or safetensors with 'vectors'"
)
AS_TEXT = "save it with KeyedVectors.save_word2vec_format and name that file"

MAX_LINE = 2**20  # bytes
COLUMN_BLOCK = 16 * 2**20  # bytes that are turned at once if an array is stored column by column
MAX_DIMENSIONS = 10_000
MAX_WORD = 10_000  # bytes
MAX_HEADER = 100 * 10**6  # bytes of the header of a safetensors file, as in the library itself
# Vectors at the start of a file, from which the deviation of its values is estimated.
SAMPLE = 1000

HEADER = re.compile(rb"\d{1,19} \d{1,19}\s*")
NUMERIC = frozenset(b"0123456789+-.eE \r")
CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r")
DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
REFUSED = {
    b"PAR1": "a Parquet table, which is not read; save its words and vectors as npz or text",
    b"\x93NUMPY": "an array without words; save it with np.savez(file, words=words, vectors=vectors)",
    b"PK\x05\x06": "an empty archive",
}
# What libraries raise for damaged archives and headers.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Table:
    """Rows of a file, one after the other."""

    form: str
    dim: int
    # The number of the row (counted from 1) or line, the word, and its values as written in the file.
    rows: Iterator[tuple[int, bytes, bytes]]
    parse: Callable[[bytes], np.ndarray]
    unit: str  # what the numbers count: "line" or "word"


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
    deviation: float  # of the values at the start of the file


def read_vector_file(path: Path, words: Collection[str]) -> VectorFile:
    """Read the vectors of some words.

    Args:
        path: a file of one of the formats above.
        words: the words whose vectors are kept; they must be spelled as in the file.

    Raises:
        InputError: if there is no such file, or it cannot be read as word vectors.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: no such file of word vectors; set tokenize.vectors to a file, "
            "or to weights/no_words.yaml for none"
        )
    try:
        with ExitStack() as opened:
            hashing = HashingReader(opened.enter_context(path.open("rb", buffering=0)))
            stream = io.BufferedReader(hashing, BLOCK)
            found = _collect(path, _recognize(path, stream, opened), words)
            while stream.read(BLOCK):
                pass
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    return VectorFile(path, hashing.digest.hexdigest(), *found)


def _collect(path: Path, table: Table, words: Collection[str]) -> tuple[Any, ...]:
    """Return the fields of a `VectorFile` that follow the digest."""
    wanted = {word.encode(errors="surrogatepass"): word for word in words}
    values: dict[str, np.ndarray] = {}
    sample: list[np.ndarray] = []
    total = repeated = undecodable = 0
    for number, word, raw in table.rows:
        total += 1
        undecodable += not (word.isascii() or _is_utf8(word))
        key = wanted.get(word)
        if key in values:
            repeated += 1
        elif key is not None or total <= SAMPLE:
            vector = _vector(path, table, number, word, raw)
            if key is not None:
                values[key] = vector
            if total <= SAMPLE:
                sample.append(vector)
    if not total:
        raise InputError(f"{path}: has no vectors; expected {FORMATS}")
    deviation = float(np.std(np.stack(sample), dtype=np.float64))
    return table.form, table.dim, total, values, repeated, undecodable, deviation


def _vector(path: Path, table: Table, number: int, word: bytes, raw: bytes) -> np.ndarray:
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            vector = table.parse(raw).astype(np.float32)
    except ValueError:
        _fault(path, f"{table.unit} {number:,}: {_shown(word)} has a value that is not a number")
    if not np.isfinite(vector).all():
        _fault(path, f"{table.unit} {number:,}: {_shown(word)} has a value that is not finite")
    return vector


def _recognize(path: Path, stream: Stream, opened: ExitStack, unpacked: bool = False) -> Table:
    head = stream.peek(BLOCK)
    if not head:
        _fault(path, f"is empty; expected {FORMATS}")
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        _fault(path, f"a pickle, which is never opened; {AS_TEXT}")
    if head[:2] == b"\x1f\x8b":
        if unpacked:
            _fault(path, "compressed twice; unpack it once and name the result")
        return _recognize(path, io.BufferedReader(GzipReader(path, stream), BLOCK), opened, unpacked=True)
    if head.startswith(b"PK\x03\x04"):
        return _npz(path, stream, opened)
    for magic, fault in REFUSED.items():
        if head.startswith(magic):
            _fault(path, fault)
    size = int.from_bytes(head[:8], "little")
    if 2 <= size <= MAX_HEADER and head[8:9] == b"{":
        return _safetensors(path, stream)
    return _text_or_binary(path, stream)


def _text_or_binary(path: Path, stream: Stream) -> Table:
    first = _line(path, stream, 1)
    if b"\0" in first:
        _fault(path, f"line 1: has NUL bytes; expected {FORMATS}, text as UTF-8")
    first = first.removeprefix(b"\xef\xbb\xbf")
    if not HEADER.fullmatch(first):
        return _glove(path, stream, first)
    count, dim = (int(each) for each in first.split())
    _check_dimensions(path, dim, "line 1: ")
    if not count:
        _fault(path, f"line 1: has no words; expected {FORMATS}")
    if _is_text(stream.peek(BLOCK), dim):
        rows = _counted(path, _lines(path, stream, 2, dim, "line 1 says"), count)
        return Table("word2vec text", dim, rows, _parse_text, "line")
    parse = _parser(np.dtype("<f4"))
    return Table("word2vec binary", dim, _binary(path, stream, count, dim), parse, "word")


def _is_text(head: bytes, dim: int) -> bool:
    """Return whether the first row behind a header is text.

    A value and its blank take two bytes or more, so that as many bytes as below are one line of text,
    unless the line has too few values.
    """
    _, _, behind = head.partition(b" ")
    values = behind[: 2 * dim - 1]
    line = values.split(b"\n")[0]
    return bool(line.strip()) and NUMERIC.issuperset(line) and CONTROL.isdisjoint(values)


def _glove(path: Path, stream: Stream, first: bytes) -> Table:
    fields = first.split()
    if len(fields) < 2 or _numbers_at_end(fields) < len(fields) - 1:
        _fault(path, f"line 1: expected a word and its values, found {_shown(first)}; expected {FORMATS}")
    dim = len(fields) - 1
    _check_dimensions(path, dim, "line 1: ")
    opening = (1, fields[0], b" ".join(fields[1:]))
    rows = itertools.chain([opening], _lines(path, stream, 2, dim, "line 1 has"))
    return Table("GloVe text", dim, rows, _parse_text, "line")


def _lines(
    path: Path, stream: Stream, start: int, dim: int, reference: str
) -> Iterator[tuple[int, bytes, bytes]]:
    for number in itertools.count(start):
        line = _line(path, stream, number)
        if not line:
            return
        line = line.rstrip(b"\r\n ")
        if line.count(b" ") == dim:
            word, _, raw = line.partition(b" ")
            yield number, word, raw
        elif line:
            # Some words have blanks: the last fields are the values.
            fields = line.split()
            found = _numbers_at_end(fields)
            if found != dim:
                _fault(path, f"line {number:,}: {found:,} values where {reference} {dim:,}")
            yield number, b" ".join(fields[:-dim]), b" ".join(fields[-dim:])


def _line(path: Path, stream: Stream, number: int) -> bytes:
    line: bytes = stream.readline(MAX_LINE + 1)
    if len(line) > MAX_LINE:
        _fault(path, f"line {number:,}: longer than {MAX_LINE:,} bytes; expected {FORMATS}")
    return line


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


def _counted(
    path: Path, rows: Iterator[tuple[int, bytes, bytes]], count: int
) -> Iterator[tuple[int, bytes, bytes]]:
    """Refuse a file that has more or fewer rows than it says."""
    found = 0
    for row in rows:
        found += 1
        if found > count:
            _fault(path, f"has more than the {count:,} words that its first line says; fetch the file again")
        yield row
    if found < count:
        _ends_after(path, found, count)


def _binary(path: Path, stream: Stream, count: int, dim: int) -> Iterator[tuple[int, bytes, bytes]]:
    size = 4 * dim
    buffer, position = b"", 0
    for number in range(1, count + 1):
        blank = buffer.find(b" ", position, position + MAX_WORD)
        while blank < 0 or len(buffer) - blank <= size:
            if blank < 0 and len(buffer) - position >= MAX_WORD:
                _fault(path, f"word {number:,}: longer than {MAX_WORD:,} bytes; fetch the file again")
            more = stream.read(BLOCK)
            if not more:
                _ends_after(path, number - 1, count)
            buffer, position = buffer[position:] + more, 0
            blank = buffer.find(b" ", 0, MAX_WORD)
        word, position = buffer[position:blank], blank + 1 + size
        yield number, word.lstrip(b"\n"), buffer[blank + 1 : position]
    if (buffer[position:] + stream.read(2)).strip(b"\n"):
        _fault(path, f"has more than the {count:,} words that its first line says; fetch the file again")


def _safetensors(path: Path, stream: Stream) -> Table:
    size = int.from_bytes(stream.read(8), "little")
    content = stream.read(size)
    try:
        if len(content) < size:
            raise ValueError("its header is cut short")
        header = json.loads(content)
        tensor = header["vectors"]
        words = json.loads(header["__metadata__"]["words"])
        (count, dim), (begin, end) = tensor["shape"], tensor["data_offsets"]
        dtype = np.dtype(DTYPES[tensor["dtype"]])
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise ValueError("'words' is not a list of words")
        if not all(type(each) is int and each >= 0 for each in (count, dim, begin, end)):
            raise ValueError("sizes that are not numbers")
        _check_dimensions(path, dim, "")
        if len(words) != count or end - begin != count * dim * dtype.itemsize:
            raise ValueError(f"{len(words)} words for {count} vectors of {dim} dimensions")
    except DAMAGED as error:
        raise InputError(
            f"{path}: safetensors without word vectors ({_reason(error)}); expected a tensor 'vectors' "
            "(words, dimensions) and a JSON list 'words' in the metadata"
        ) from None
    _skip(stream, begin)
    encoded = (word.encode(errors="surrogatepass") for word in words)
    rows = _blocks(path, stream, dim * dtype.itemsize, count)
    numbered = ((number, word, row) for number, (word, row) in enumerate(zip(encoded, rows, strict=True), 1))
    return Table("safetensors", dim, numbered, _parser(dtype), "word")


def _npz(path: Path, stream: Stream, opened: ExitStack) -> Table:
    # Archives are read from their end. A copy has the bytes that the digest is of.
    copy = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, copy, BLOCK)
    try:
        archive = opened.enter_context(zipfile.ZipFile(copy))
        names = archive.namelist()
        if any(name.endswith("data.pkl") for name in names):
            _fault(path, f"a pickle in an archive, which is never opened; {AS_TEXT}")
        if not {"words.npy", "vectors.npy"} <= set(names):
            listed = ", ".join(repr(name) for name in names[:3])
            _fault(
                path,
                f"an archive of {listed}; unpack it and name the file of word vectors, or expected {FORMATS}",
            )
        kinds = {archive.getinfo(name).compress_type for name in ("words.npy", "vectors.npy")}
        if not kinds <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("compressed in another way than np.savez_compressed does")
        words, vectors = (opened.enter_context(archive.open(f"{name}.npy")) for name in ("words", "vectors"))
        (count,), of_words, _ = _array_header(words)
        (rows, dim), of_vectors, by_columns = _array_header(vectors)
        _check_dimensions(path, dim, "")
        if of_words.kind not in "SU" or of_words.itemsize > 4 * MAX_WORD or not of_words.itemsize:
            raise ValueError(f"'words' has type {of_words}; use np.array(words, dtype=str)")
        if of_vectors.kind != "f" or of_vectors.itemsize > 8:
            raise ValueError(f"'vectors' has type {of_vectors}; use float32")
        if rows != count:
            raise ValueError(f"{count} words for {rows} vectors")
    except DAMAGED as error:
        raise InputError(
            f"{path}: npz without word vectors ({_reason(error)}); expected arrays 'words' (words) of text "
            "and 'vectors' (words, dimensions) of numbers"
        ) from None
    texts = _words(path, words, of_words, count)
    raw = (
        _rows_of_columns(path, vectors, opened, count, dim, of_vectors)
        if by_columns
        else _blocks(path, vectors, dim * of_vectors.itemsize, count)
    )
    numbered = ((number, word, row) for number, (word, row) in enumerate(zip(texts, raw, strict=True), 1))
    return Table("npz", dim, numbered, _parser(of_vectors), "word")


def _words(path: Path, file: IO[bytes], dtype: np.dtype[Any], count: int) -> Iterator[bytes]:
    encoding = "utf-32-be" if dtype.str.startswith(">") else "utf-32-le"
    for text in _blocks(path, file, dtype.itemsize, count):
        word = text.decode(encoding, errors="replace").encode() if dtype.kind == "U" else text
        yield word.rstrip(b"\0")


def _rows_of_columns(
    path: Path, file: IO[bytes], opened: ExitStack, count: int, dim: int, dtype: np.dtype[Any]
) -> Iterator[bytes]:
    """Yield the rows of an array that is stored column by column."""
    copy = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    try:
        shutil.copyfileobj(file, copy, BLOCK)
    except DAMAGED as error:
        raise InputError(f"{path}: damaged ({_reason(error)}); fetch the file again") from None
    if copy.tell() < count * dim * dtype.itemsize:
        _fault(path, "its vectors are cut short; fetch the file again")
    at_once = max(1, COLUMN_BLOCK // (dim * dtype.itemsize))
    for start in range(0, count, at_once):
        rows = np.empty((min(at_once, count - start), dim), dtype)
        for column in range(dim):
            copy.seek((column * count + start) * dtype.itemsize)
            rows[:, column] = np.frombuffer(copy.read(len(rows) * dtype.itemsize), dtype)
        yield from (row.tobytes() for row in rows)


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return the shape and type of an array, and whether it is stored column by column."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(
            "an array of objects is a pickle, which is never opened; use np.array(words, dtype=str)"
        )
    if not all(type(each) is int and each >= 0 for each in shape):
        raise ValueError(f"shape {shape}")
    return shape, dtype, by_columns


def _blocks(path: Path, stream: IO[bytes], size: int, count: int) -> Iterator[bytes]:
    """Yield `count` rows of `size` bytes."""
    done = 0
    per_block = max(1, BLOCK // size)
    while done < count:
        expected = min(per_block, count - done)
        try:
            content = stream.read(expected * size)
        except DAMAGED as error:
            raise InputError(f"{path}: damaged ({_reason(error)}); fetch the file again") from None
        whole = len(content) // size
        yield from (content[start : start + size] for start in range(0, whole * size, size))
        done += whole
        if whole < expected:
            _ends_after(path, done, count)


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        content = stream.read(min(count, BLOCK))
        if not content:
            return
        count -= len(content)


def _parser(dtype: np.dtype[Any]) -> Callable[[bytes], np.ndarray]:
    return lambda raw: np.frombuffer(raw, dtype)


def _check_dimensions(path: Path, dim: int, place: str) -> None:
    if not 1 <= dim <= MAX_DIMENSIONS:
        _fault(path, f"{place}vectors of {dim:,} dimensions; expected 1 to {MAX_DIMENSIONS:,}")


def _ends_after(path: Path, found: int, count: int) -> NoReturn:
    _fault(path, f"ends after {found:,} of {count:,} words; fetch the file again")


def _fault(path: Path, fault: str) -> NoReturn:
    raise InputError(f"{path}: {fault}")


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(text: bytes) -> str:
    shown = text.strip()[:40].decode(errors="replace")
    return repr(shown + "…" if len(text.strip()) > 40 else shown)


def _reason(error: Exception) -> str:
    reason = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return " ".join(reason.split())[:200]
