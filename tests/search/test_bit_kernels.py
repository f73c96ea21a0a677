import numpy as np
import pytest

from fne.search.bit_kernels import ternary_products
from fne.store.layout import pack


@pytest.mark.parametrize("features", [1, 7, 8, 31, 32, 33, 64, 100, 257, 1000])
def test_products_equal_plain_loops(features):
    generator = np.random.default_rng(features)
    values = generator.integers(-1, 2, (20, features)).astype(np.int8)
    query = generator.integers(-1, 2, features).astype(np.int8)
    wanted = [sum(int(a) * int(b) for a, b in zip(row, query, strict=True)) for row in values]
    assert ternary_products(pack(values), pack(query[None])[0]).tolist() == wanted


def test_without_rows_there_are_no_products():
    assert ternary_products(np.zeros((0, 4), np.uint8), np.zeros(4, np.uint8)).tolist() == []
