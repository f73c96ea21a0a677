"""Compiled dot products of ternary rows, by counting bits.

Two values multiply to 0 where one is absent, and to -1 where their signs differ, so that

    dot product = bits - count(absent) - 2 count(both present, of different sign).

Counting is the expensive part. Before anything is counted, full adders turn three words
of one weight into one of that weight and one of twice the weight (Harley and Seal), bit
by bit, until few words are left. numba has no vectors, and LLVM's own vectorizing of such
code depends on its version and mood, so that the inner part is written in LLVM's
language: plain operations on vectors, which it translates for any CPU.

The module needs numba, which takes a second to import, so it is imported where it is used.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

LANES = 4  # words of a vector
VECTORS = 49  # of each plane in a block; one block holds the 12,416 features of VGG16
VECTOR_BYTES = 8 * LANES
BLOCK_BYTES = VECTORS * VECTOR_BYTES
# Rows that stay in the fastest cache of a core while all queries pass by.
ROWS = 8

_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, LANES)

cgutils: Any = untyped_cgutils
_compiled = numba.njit(cache=True, nogil=True)


def padded_bytes(features: int) -> int:
    """Return the bytes of a plane that fills whole blocks."""
    return -(-features // (8 * BLOCK_BYTES)) * BLOCK_BYTES


@_compiled
def split(planes: np.ndarray, absent: np.ndarray, negative: np.ndarray) -> None:
    """Write which values of a row are absent (0) and which are negative.

    Args:
        planes: (2 * bytes,), the plane of +1 and the plane of -1.
        absent: (padded bytes,), written; what no value fills is absent.
        negative: (padded bytes,), written.
    """
    half = len(planes) // 2
    for place in range(half):
        absent[place] = ~(planes[place] | planes[half + place])
        negative[place] = planes[half + place]
    absent[half:] = 255
    negative[half:] = 0


@_compiled
def score(queries: np.ndarray, rows: np.ndarray, scores: np.ndarray, first: int, last: int) -> None:
    """Write the dot products of all queries with some rows.

    Args:
        queries: (queries, 2, padded bytes), from `split`.
        rows: (rows, 2 * bytes), bit planes as stored.
        scores: (queries, rows), written.
        first: the first row.
        last: the row after the last one.
    """
    size = queries.shape[2]
    blocks, bits = size // BLOCK_BYTES, 8 * size
    held = np.empty((ROWS, 2, size), dtype=np.uint8)
    for top in range(first, last, ROWS):
        end = min(top + ROWS, last)
        for row in range(top, end):
            split(rows[row], held[row - top, 0], held[row - top, 1])
        for query in range(len(queries)):
            for row in range(top, end):
                ours = queries.ctypes.data + query * 2 * size
                theirs = held.ctypes.data + (row - top) * 2 * size
                scores[query, row] = bits - _mismatch(ours, theirs, size, blocks)


@_compiled
def select(scores: np.ndarray, start: int, best: np.ndarray, positions: np.ndarray) -> None:
    """Bring the best of each query up to date with the scores of further rows; the earlier row wins a tie.

    Args:
        scores: (queries, rows).
        start: the position of the first of these rows.
        best: (queries, k), from high to low.
        positions: (queries, k), where those rows are.
    """
    k = best.shape[1]
    for query in range(len(scores)):
        for row in range(scores.shape[1]):
            found = scores[query, row]
            if found > best[query, k - 1]:
                place = k - 1
                while place > 0 and best[query, place - 1] < found:
                    best[query, place] = best[query, place - 1]
                    positions[query, place] = positions[query, place - 1]
                    place -= 1
                best[query, place] = found
                positions[query, place] = start + row


def _type_mismatch(typing: Any, ours: Any, theirs: Any, size: Any, blocks: Any) -> Any:
    """Return count(absent) + 2 count(of different sign) of two rows.

    Args:
        typing: numba's.
        ours: the address of a row's two planes.
        theirs: the address of the other's.
        size: the bytes of a plane.
        blocks: how many blocks that is.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ours, theirs, size, blocks = arguments
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0] * LANES))
        with cgutils.for_range(builder, blocks) as loop:
            offset = builder.mul(loop.index, ir.Constant(_WORD, BLOCK_BYTES))
            adders = _Adders(builder)
            for vector in range(VECTORS):
                place = builder.add(offset, ir.Constant(_WORD, vector * VECTOR_BYTES))
                sign_place = builder.add(place, size)
                absent = builder.or_(_load(builder, ours, place), _load(builder, theirs, place))
                differ = builder.xor(_load(builder, ours, sign_place), _load(builder, theirs, sign_place))
                adders.push(0, absent)
                adders.push(1, builder.and_(differ, builder.not_(absent)))
            builder.store(builder.add(builder.load(total), adders.count()), total)
        lanes = [
            builder.extract_element(builder.load(total), ir.Constant(_WORD, lane)) for lane in range(LANES)
        ]
        count = lanes[0]
        for lane in lanes[1:]:
            count = builder.add(count, lane)
        return count

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


_mismatch: Any = intrinsic(_type_mismatch)


def _load(builder: Any, address: Any, offset: Any) -> Any:
    pointer = builder.inttoptr(builder.add(address, offset), _VECTOR.as_pointer())
    return builder.load(pointer, align=1)


class _Adders:
    """Vectors of bits, by the power of two that a bit stands for; never more than two of one weight."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._held: dict[int, list[Any]] = {}

    def push(self, weight: int, vector: Any) -> None:
        held = self._held.setdefault(weight, [])
        held.append(vector)
        if len(held) == 3:
            total, carry = self._add(*held)
            self._held[weight] = [total]
            self.push(weight + 1, carry)

    def count(self) -> Any:
        """Return, for each lane, the sum of all bits by their weights."""
        builder = self._builder
        form = ir.FunctionType(_VECTOR, [_VECTOR])
        count_bits = cgutils.get_or_insert_function(builder.module, form, f"llvm.ctpop.v{LANES}i64")
        total = ir.Constant(_VECTOR, [0] * LANES)
        for weight, vectors in self._held.items():
            for vector in vectors:
                shift = ir.Constant(_VECTOR, [weight] * LANES)
                total = builder.add(total, builder.shl(builder.call(count_bits, [vector]), shift))
        return total

    def _add(self, one: Any, two: Any, three: Any) -> tuple[Any, Any]:
        builder = self._builder
        either = builder.xor(one, two)
        carry = builder.or_(builder.and_(one, two), builder.and_(either, three))
        return builder.xor(either, three), carry
