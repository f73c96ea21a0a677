"""Files of word vectors in every format that is read."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

Vectors = Mapping[str, Sequence[float]]


def glove(path: Path, vectors: Vectors) -> None:
    """Write `word v1 … vd`."""
    path.write_bytes(_lines(vectors))


def word2vec_text(path: Path, vectors: Vectors) -> None:
    """Write GloVe's lines after the numbers of words and of dimensions."""
    path.write_bytes(_header(vectors) + _lines(vectors))


def word2vec_binary(path: Path, vectors: Vectors, newline: bytes = b"\n") -> None:
    """Write words and float32 numbers."""
    rows = [word.encode() + b" " + np.array(row, "<f4").tobytes() + newline for word, row in vectors.items()]
    path.write_bytes(_header(vectors) + b"".join(rows))


def npz(path: Path, vectors: Vectors) -> None:
    """Write two arrays, the vectors first."""
    with path.open("wb") as file:
        np.savez(file, vectors=_matrix(vectors), words=np.array([*vectors]))


def npz_compressed(path: Path, vectors: Vectors) -> None:
    """Write two compressed arrays, the words as bytes."""
    with path.open("wb") as file:
        words = np.array([word.encode() for word in vectors])
        np.savez_compressed(file, words=words, vectors=_matrix(vectors).astype(np.float64))


def safetensors(path: Path, vectors: Vectors) -> None:
    """Write a tensor beside another one, and the words into the metadata."""
    tensors = {"a": np.zeros(3, np.float64), "vectors": _matrix(vectors), "z": np.zeros(3, np.float16)}
    save_file(tensors, path, metadata={"words": json.dumps([*vectors])})


def gzipped(write: Callable[[Path, Vectors], None]) -> Callable[[Path, Vectors], None]:
    """Return a writer that compresses what another one writes, in two members."""

    def write_gzipped(path: Path, vectors: Vectors) -> None:
        write(path, vectors)
        content = path.read_bytes()
        half = len(content) // 2
        path.write_bytes(gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1) + b"\0" * 9)

    return write_gzipped


def _header(vectors: Vectors) -> bytes:
    return f"{len(vectors)} {len(next(iter(vectors.values())))}\n".encode()


def _lines(vectors: Vectors) -> bytes:
    rows = (" ".join([word, *(repr(float(each)) for each in row)]) for word, row in vectors.items())
    return "".join(f"{row}\n" for row in rows).encode()


def _matrix(vectors: Vectors) -> np.ndarray:
    return np.array([*vectors.values()], np.float32)


WRITERS: dict[str, Callable[[Path, Vectors], None]] = {
    "glove": glove,
    "glove, gzipped": gzipped(glove),
    "word2vec text": word2vec_text,
    "word2vec text, gzipped": gzipped(word2vec_text),
    "word2vec binary": word2vec_binary,
    "word2vec binary without newlines": lambda path, vectors: word2vec_binary(path, vectors, b""),
    "word2vec binary, gzipped": gzipped(word2vec_binary),
    "npz": npz,
    "npz, compressed": npz_compressed,
    "safetensors": safetensors,
}
