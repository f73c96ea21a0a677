from fractions import Fraction

import pytest

from fne.extraction.fast_convolutions.winograd_points import (
    SIZES,
    filter_matrix,
    input_matrix,
    opposite_points,
    output_matrix,
)


def times(matrix, values):
    return [sum(a * b for a, b in zip(row, values, strict=True)) for row in matrix]


@pytest.mark.parametrize("size", SIZES)
def test_products_of_transformed_values_are_a_convolution_exactly(size):
    pixels = [Fraction((7 * number) ** 2 % 23 - 11) for number in range(size + 2)]
    weights = [Fraction(3), Fraction(-5, 7), Fraction(11)]
    products = [
        a * b
        for a, b in zip(times(input_matrix(size), pixels), times(filter_matrix(size), weights), strict=True)
    ]
    expected = [sum(pixels[at + tap] * weights[tap] for tap in range(3)) for at in range(size)]
    assert times(output_matrix(size), products) == expected


@pytest.mark.parametrize("size", SIZES)
def test_input_and_output_matrices_have_exact_values_in_float32(size):
    values = [
        value for matrix in (input_matrix(size), output_matrix(size)) for row in matrix for value in row
    ]
    assert all(value.denominator & (value.denominator - 1) == 0 for value in values)
    assert all(abs(value.numerator) < 2**24 for value in values)


@pytest.mark.parametrize(("size", "pairs"), [(4, 2), (5, 2), (6, 3)])
def test_opposite_points_are_found(size, pairs):
    assert len(opposite_points(size)) == pairs
