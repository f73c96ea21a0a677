"""Nearest neighbors of ternary rows by exact dot products, from the bit planes as they are stored."""

import numpy as np

from fne.features.threads import share_out

# Scores that are held at once: queries by rows.
QUERIES = 256
ROWS = 8192


def ternary_scores(queries: np.ndarray, rows: np.ndarray, features: int) -> np.ndarray:
    """Return the dot products of ternary rows.

    Args:
        queries: (queries, bytes), bit planes from `fne.store.ternary.pack`.
        rows: (rows, bytes), the same.
        features: how many values a row has.

    Returns:
        (queries, rows) in int32.

    Raises:
        ValueError: if the planes are not of that many features.

    Example:
        >>> from fne.store.ternary import pack
        >>> ternary_scores(pack(np.array([[1, -1, 0]])), pack(np.array([[1, 1, 1], [1, -1, -1]])), features=3)
        array([[0, 2]], dtype=int32)
    """
    _check(queries, rows, features)
    return _score(_split(queries, features), rows)


def nearest(queries: np.ndarray, rows: np.ndarray, features: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the `k` rows with the highest dot product for each query.

    Args:
        queries: (queries, bytes), bit planes from `fne.store.ternary.pack`.
        rows: (rows, bytes), the same; may be memory-mapped, since it is read a block at a time.
        features: how many values a row has.
        k: how many are wanted; if there are fewer rows, that many are found.

    Returns:
        Positions in `rows` (queries, k), the best first and the earlier first of equals, and their scores.

    Raises:
        ValueError: if the planes are not of that many features.
    """
    from fne.features.bitwise import select

    _check(queries, rows, features)
    k = min(k, len(rows))
    scores = np.full((len(queries), k), np.iinfo(np.int32).min, dtype=np.int32)
    positions = np.zeros((len(queries), k), dtype=np.int64)
    if k == 0:
        return positions, scores
    for top in range(0, len(queries), QUERIES):
        some = slice(top, top + QUERIES)
        split_queries = _split(queries[some], features)
        for start in range(0, len(rows), ROWS):
            block = _score(split_queries, rows[start : start + ROWS])
            select(block, start, scores[some], positions[some])
    return positions, scores


def _score(split_queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    from fne.features.bitwise import score

    kept = np.ascontiguousarray(rows)
    scores = np.empty((len(split_queries), len(kept)), dtype=np.int32)
    share_out(lambda first, last: score(split_queries, kept, scores, first, last), len(kept))
    return scores


def _split(queries: np.ndarray, features: int) -> np.ndarray:
    from fne.features.bitwise import padded_bytes, split

    kept = np.ascontiguousarray(queries)
    result = np.empty((len(kept), 2, padded_bytes(features)), dtype=np.uint8)
    for planes, (absent, negative) in zip(kept, result, strict=True):
        split(planes, absent, negative)
    return result


def _check(queries: np.ndarray, rows: np.ndarray, features: int) -> None:
    width = 2 * -(-features // 8)
    for planes in (queries, rows):
        if planes.ndim != 2 or planes.shape[1] != width or planes.dtype != np.uint8:
            raise ValueError(
                f"rows of {features} ternary values are {width} bytes, got {planes.dtype} {planes.shape}"
            )
