import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fne.store.ternary import pack, unpack


@given(arrays(np.int8, st.tuples(st.integers(0, 5), st.integers(1, 40)), elements=st.integers(-1, 1)))
def test_unpacking_gives_back_what_was_packed(values):
    assert np.array_equal(unpack(pack(values), values.shape[1]), values)


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
def test_values_are_unpacked_in_the_type_that_is_asked_for(dtype):
    values = np.array([[1, 0, -1, -1, 0, 1, 1, 0, -1]], dtype=np.int8)
    unpacked = unpack(pack(values), 9, dtype)
    assert unpacked.dtype == dtype
    assert np.array_equal(unpacked, values)
    assert unpacked.flags.c_contiguous


@pytest.mark.parametrize(("features", "size"), [(1, 2), (8, 2), (9, 4), (12416, 3104)])
def test_a_value_takes_two_bits(features, size):
    assert pack(np.zeros((1, features), dtype=np.int8)).nbytes == size
