"""The matrices of Winograd's minimal filtering F(m, 3), from their interpolation points.

m results of a filter with 3 values are computed from m + 2 input values with m + 2 products instead of
3 m: input and filter are evaluated as polynomials at m + 1 points and at infinity (Toom and Cook), and the
results are what interpolates the products (Lavin and Gray, 2016).

The points decide how exact the results are in float32. With Lavin and Gray's points 0, 1, -1, 2 and -2, the
error of F(4, 3) is twice that of the points chosen here.
"""

from fractions import Fraction
from functools import cache
from itertools import combinations
from math import prod

FILTER = 3
POINTS = {
    4: ("0", "5/8", "-5/8", "3/2", "-3/2"),
    5: ("0", "1", "-1", "2", "-2", "1/2"),
    6: ("0", "1", "-1", "2", "-2", "1/2", "-1/2"),
}
SIZES = tuple(POINTS)

Matrix = list[list[Fraction]]


@cache
def input_matrix(size: int) -> Matrix:
    """Return the matrix (size + 2, size + 2) that transforms input values.

    Its rows are the coefficients of the product of (x - q) for all other points q.
    """
    points = _points(size)
    rows = [_coefficients([other for other in points if other != point]) for point in points]
    return [*([*row, Fraction(0)] for row in rows), _coefficients(points)]


@cache
def filter_matrix(size: int) -> Matrix:
    """Return the matrix (size + 2, 3) that transforms the values of a filter."""
    points = _points(size)
    scales = [prod(point - other for other in points if other != point) for point in points]
    rows = [
        [point**power / scale for power in range(FILTER)] for point, scale in zip(points, scales, strict=True)
    ]
    return [*rows, [Fraction(0), Fraction(0), Fraction(1)]]


@cache
def output_matrix(size: int) -> Matrix:
    """Return the matrix (size, size + 2) that transforms products into results."""
    points = _points(size)
    infinity = [Fraction(power == size - 1) for power in range(size)]
    return [[*(point**power for point in points), infinity[power]] for power in range(size)]


@cache
def opposite_points(size: int) -> list[tuple[int, int]]:
    """Return the numbers of points that differ only in their sign."""
    points = _points(size)
    return [(a, b) for a, b in combinations(range(len(points)), 2) if points[a] == -points[b]]


def _points(size: int) -> list[Fraction]:
    return [Fraction(point) for point in POINTS[size]]


def _coefficients(roots: list[Fraction]) -> list[Fraction]:
    """Return the coefficients of the product of (x - root), constant term first."""
    result = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *result], [root * value for value in result] + [Fraction(0)]
        result = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return result
