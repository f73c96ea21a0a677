import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fne.store import layout
from fne.store.layout import Layer, pack, unpack, value_fault


@given(arrays(np.int8, st.tuples(st.integers(0, 5), st.integers(1, 40)), elements=st.integers(-1, 1)))
def test_unpacking_is_the_inverse_of_packing(values):
    assert np.array_equal(unpack(pack(values), values.shape[1]), values)


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
def test_values_are_unpacked_in_the_requested_type(dtype):
    values = np.array([[1, 0, -1, -1, 0, 1, 1, 0, -1]], dtype=np.int8)
    unpacked = unpack(pack(values), 9, dtype)
    assert unpacked.dtype == dtype
    assert np.array_equal(unpacked, values)
    assert unpacked.flags.c_contiguous


@pytest.mark.parametrize(("features", "size"), [(1, 2), (8, 2), (9, 4), (12416, 3104)])
def test_a_value_takes_two_bits(features, size):
    assert pack(np.zeros((1, features), dtype=np.int8)).nbytes == size


LAYERS = [Layer("conv", 2), Layer("fc", 3)]
IDS = ["a", "b", "c"]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    """A block is checked in more than one slice."""
    monkeypatch.setattr(layout, "SLICE", 25)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_row_and_layer_of_a_value_that_is_not_finite_are_named(value, dtype):
    block = np.zeros((3, 5), dtype=dtype)
    assert value_fault(block, dtype, IDS, LAYERS) is None
    block[2, 3] = value
    assert value_fault(block, dtype, IDS, LAYERS) == f"row 'c' has {value} in layer 'fc', column 3"


def test_a_ternary_value_of_both_signs_and_bits_beyond_the_last_feature_are_named():
    said = "row '{}' has neither -1, 0 nor +1 in layer '{}', column {}".format
    planes = pack(np.array([[1, 0, -1, 0, 1]] * 3, dtype=np.int8))
    assert value_fault(planes, "ternary", IDS, LAYERS) is None
    planes[1, 1] |= 128
    assert value_fault(planes, "ternary", IDS, LAYERS) == said("b", "conv", 0)
    planes = pack(np.zeros((3, 5), dtype=np.int8))
    planes[0, 0] |= 1
    assert value_fault(planes, "ternary", IDS, LAYERS) == said("a", "none", 7)
    assert value_fault(np.zeros((0, 5), dtype=np.float32), "float32", [], LAYERS) is None
