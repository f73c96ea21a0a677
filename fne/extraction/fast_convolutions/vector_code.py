"""Instructions for vectors that numba's loops consist of, written for LLVM.

Numba vectorizes loops, but it does not keep the sums of a matrix product in registers, nor the values
of a transform. So these operations are written with vectors of LANES values: one-dimensional transforms
of Winograd's convolutions, and the product of a few tiles with a panel of filters. LLVM chooses the
registers, and whether a product and a sum are one instruction.

Numba keeps compiled code for a file until that file changes, and does not follow imports. So
`winograd_kernels.py` names the digest of this file, which a test compares.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

from fne.extraction.fast_convolutions.winograd_points import (
    SIZES,
    input_matrix,
    opposite_points,
    output_matrix,
)

BLOCK = 16  # channels that are transformed together
# The sums of TILES tiles and two vectors of filters take as many registers as the processor has, but a few.
LANES, TILES = (16, 14) if binding.get_host_cpu_features().get("avx512f") else (8, 6)
PANEL = 2 * LANES  # filters that are multiplied together

_FLOAT, _INT, _SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)

Vectors = list[ir.Value]
# Typed as numba's loops call it: without the typing context.
intrinsic: Callable[[Callable[..., Any]], Callable[..., None]] = _numba_intrinsic


class VectorCode:
    """Appends instructions to a function that numba compiles."""

    def __init__(self, context: Any, builder: ir.IRBuilder) -> None:
        self.context = context
        self.builder = builder
        self._fma = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fmuladd.v{LANES}f32"
        )

    def address(self, kind: types.Array, array: ir.Value, at: ir.Value) -> ir.Value:
        """Return the address of a value of a flat array."""
        return self.shifted(self.context.make_array(kind)(self.context, self.builder, array).data, at)

    def shifted(self, pointer: ir.Value, at: ir.Value | int) -> ir.Value:
        """Return the address some values further."""
        return self.builder.gep(pointer, [_integer(at)], source_etype=_FLOAT)

    def load(self, pointer: ir.Value) -> ir.Value:
        """Read a vector."""
        return self.builder.load(self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4, typ=_VECTOR)

    def store(self, vector: ir.Value, pointer: ir.Value) -> None:
        """Write a vector."""
        self.builder.store(vector, self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def splat(self, value: ir.Value) -> ir.Value:
        """Return a vector of equal values."""
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(_SHORT, 0))
        return self.builder.shuffle_vector(
            first, undefined, ir.Constant(ir.VectorType(_SHORT, LANES), [0] * LANES)
        )

    def add_product(self, first: ir.Value, second: ir.Value, total: ir.Value) -> ir.Value:
        """Return first * second + total."""
        return self.builder.call(self._fma, [first, second, total])

    def combination(self, coefficients: Sequence[Fraction], vectors: Vectors) -> ir.Value:
        """Return the sum of vectors, each multiplied by its coefficient."""
        terms = [(each, vector) for each, vector in zip(coefficients, vectors, strict=True) if each]
        terms.sort(key=lambda term: term[0] != 1)  # a sum starts with a vector itself, if there is one
        total = None
        for coefficient, vector in terms:
            factor = ir.Constant(_VECTOR, [float(coefficient)] * LANES)
            if total is None:
                total = vector if coefficient == 1 else self.builder.fmul(vector, factor)
            elif coefficient == 1:
                total = self.builder.fadd(total, vector)
            else:
                total = self.add_product(vector, factor, total)
        return total

    def input_transform(self, size: int, pixels: Vectors) -> Vectors:
        """Multiply pixels by the input matrix. Rows of opposite points are a sum and a difference."""
        matrix = input_matrix(size)
        results = [self.combination(row, pixels) for row in matrix]
        for point, opposite in opposite_points(size):
            both = list(zip(matrix[point], matrix[opposite], strict=True))
            equal = self.combination([(a + b) / 2 for a, b in both], pixels)
            different = self.combination([(a - b) / 2 for a, b in both], pixels)
            results[point] = self.builder.fadd(equal, different)
            results[opposite] = self.builder.fsub(equal, different)
        return results

    def output_transform(self, size: int, products: Vectors) -> Vectors:
        """Multiply products by the output matrix. Opposite points share their sum and their difference."""
        values, rows = list(products), [list(row) for row in output_matrix(size)]
        for point, opposite in opposite_points(size):
            values[point] = self.builder.fadd(products[point], products[opposite])
            values[opposite] = self.builder.fsub(products[point], products[opposite])
            for power, row in enumerate(rows):  # even powers of the two are equal, odd powers opposite
                row[opposite if power % 2 == 0 else point] = Fraction(0)
                row[point if power % 2 == 0 else opposite] = Fraction(output_matrix(size)[power][point])
        return [self.combination(row, values) for row in rows]

    def choose(self, value: ir.Value, options: Sequence[int], emit: Callable[[int], None]) -> None:
        """Branch to the code of the option that a value is."""
        end = self.builder.append_basic_block("chosen")
        choice = self.builder.switch(value, end)
        for option in options:
            block = self.builder.append_basic_block(f"option{option}")
            choice.add_case(ir.Constant(_INT, option), block)
            self.builder.position_at_end(block)
            emit(option)
            self.builder.branch(end)
        self.builder.position_at_end(end)

    def line(
        self,
        size: ir.Value,
        begin: tuple[ir.Value, ir.Value],
        end: tuple[ir.Value, ir.Value],
        transform: Callable[[int, Vectors, int], Vectors],
    ) -> None:
        """Transform a line of a tile. Lines are given as their beginning and the distance of their blocks."""

        def emit(chosen: int) -> None:
            for lane in range(0, BLOCK, LANES):
                sources = [self._nth(begin, number, lane) for number in range(chosen + 2)]
                results = transform(chosen, [self.load(each) for each in sources], lane)
                for number, vector in enumerate(results):
                    self.store(vector, self._nth(end, number, lane))

        self.choose(size, SIZES, emit)

    def _nth(self, line: tuple[ir.Value, ir.Value], number: int, lane: int) -> ir.Value:
        pointer, step = line
        return self.shifted(self.shifted(pointer, self.builder.mul(step, _integer(number))), lane)

    def products(
        self, tiles: int, left: ir.Value, right: ir.Value, channels: ir.Value, add: ir.Value, target: ir.Value
    ) -> None:
        """Multiply tiles by a panel of filters: a loop over channels whose sums stay in registers.

        They are written to the target, or added to it if `add` is not zero.
        """
        builder, before = self.builder, self.builder.block
        loop, after = builder.append_basic_block("channels"), builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        channel = builder.phi(_INT)
        sums = [[builder.phi(_VECTOR) for _ in range(0, PANEL, LANES)] for _ in range(tiles)]
        block = builder.mul(builder.and_(channel, _integer(-BLOCK)), _integer(TILES))
        values = self.shifted(left, builder.add(block, builder.and_(channel, _integer(BLOCK - 1))))
        filters = self.shifted(right, builder.mul(channel, _integer(PANEL)))
        vectors = [self.load(self.shifted(filters, lane)) for lane in range(0, PANEL, LANES)]
        results = []
        for tile, row in enumerate(sums):
            value = self.splat(builder.load(self.shifted(values, tile * BLOCK), align=4, typ=_FLOAT))
            results.append([self.add_product(value, *pair) for pair in zip(vectors, row, strict=True)])
        following = builder.add(channel, _integer(1))
        channel.add_incoming(_integer(0), before)
        channel.add_incoming(following, loop)
        for old, new in zip(chain(*sums), chain(*results), strict=True):
            old.add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
            old.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, channels), loop, after)
        builder.position_at_end(after)
        continued = builder.icmp_signed("!=", add, _integer(0))
        for number, vector in enumerate(chain(*results)):
            place = self.shifted(target, number * LANES)
            before_it = builder.select(continued, self.load(place), ir.Constant(_VECTOR, [0.0] * LANES))
            self.store(builder.fadd(before_it, vector), place)


def _line_intrinsic(transform: Callable[[VectorCode, int, Vectors], Vectors]) -> Callable[..., None]:
    """Make an operation that transforms size + 2 blocks, `step` values apart; results are `stride` apart."""

    @intrinsic
    def line(_: Any, size: Any, source: Any, at: Any, step: Any, target: Any, to: Any, stride: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: Sequence[ir.Value]) -> Any:
            code, (chosen, read, begin, pace, written, end, width) = VectorCode(context, builder), arguments
            code.line(
                chosen,
                (code.address(source, read, begin), pace),
                (code.address(target, written, end), width),
                lambda size, vectors, lane: transform(code, size, vectors),
            )
            return context.get_dummy_value()

        return types.void(size, source, at, step, target, to, stride), emit

    return line


transform_line = _line_intrinsic(VectorCode.input_transform)
invert_line = _line_intrinsic(VectorCode.output_transform)


@intrinsic
def finish_line(
    _: Any,
    size: Any,
    source: Any,
    at: Any,
    target: Any,
    to: Any,
    stride: Any,
    bias: Any,
    channel: Any,
    lowest: Any,
) -> Any:
    """Apply the output transform to size + 2 blocks, add the bias, and raise values to `lowest`."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: Sequence[ir.Value]) -> Any:
        code, (chosen, read, begin, written, end, width, biases, first, least) = (
            VectorCode(context, builder),
            arguments,
        )
        added, limit = code.address(bias, biases, first), code.splat(least)

        def finish(size: int, products: Vectors, lane: int) -> Vectors:
            shift = code.load(code.shifted(added, lane))
            sums = [builder.fadd(each, shift) for each in code.output_transform(size, products)]
            # NaN compares false, so it is kept and detected later.
            return [builder.select(builder.fcmp_ordered("<", each, limit), limit, each) for each in sums]

        code.line(
            chosen,
            (code.address(source, read, begin), _integer(BLOCK)),
            (code.address(target, written, end), width),
            finish,
        )
        return context.get_dummy_value()

    return types.void(size, source, at, target, to, stride, bias, channel, lowest), emit


@intrinsic
def copy_block(_: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """Copy the channels of a block."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: Sequence[ir.Value]) -> Any:
        code, (read, begin, written, end) = VectorCode(context, builder), arguments
        for lane in range(0, BLOCK, LANES):
            vector = code.load(code.shifted(code.address(source, read, begin), lane))
            code.store(vector, code.shifted(code.address(target, written, end), lane))
        return context.get_dummy_value()

    return types.void(source, at, target, to), emit


@intrinsic
def multiply_group(
    _: Any,
    count: Any,
    tiles: Any,
    at: Any,
    filters: Any,
    of: Any,
    channels: Any,
    add: Any,
    products: Any,
    to: Any,
) -> Any:
    """Multiply `count` tiles, at most TILES, by a panel of filters; write the products or add them."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: Sequence[ir.Value]) -> Any:
        code, (chosen, read, begin, panels, panel, depth, added, written, end) = (
            VectorCode(context, builder),
            arguments,
        )
        left, right = code.address(tiles, read, begin), code.address(filters, panels, panel)
        target = code.address(products, written, end)
        code.choose(
            chosen,
            range(1, TILES + 1),
            lambda number: code.products(number, left, right, depth, added, target),
        )
        return context.get_dummy_value()

    return types.void(count, tiles, at, filters, of, channels, add, products, to), emit


def _integer(value: ir.Value | int) -> ir.Value:
    return ir.Constant(_INT, value) if isinstance(value, int) else value
