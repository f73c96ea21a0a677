"""The shares of each layer."""

from fne.report.layers import Share, layer_shares
from tests.report.runs import FULL


def test_shares_come_in_percent_and_in_the_order_of_the_layers():
    assert layer_shares(FULL) == [Share("conv1_1", 25, 50, 25, 12.5), Share("fc7", 12.5, 75, 12.5, 0)]


def test_an_embedding_that_is_not_ternary_has_none():
    assert layer_shares({"embeddings": {"digest": "x", "settings": {"kind": "layer"}}}) == []
    assert layer_shares({}) == []
