from typing import Annotated

import pytest
from pydantic import Field

from fne.core.settings import Section
from fne.core.variants import NoSettings, Variant, chosen, parse_blocks, settings_of


class Reader(Section):
    """Two keys of a variant's own."""

    layers: Annotated[int, Field(ge=1, examples=[2])]
    dropout: Annotated[float, Field(ge=0, lt=1)]


FAMILY = {"deep": Variant(print, Reader), "plain": Variant(print)}


def test_blocks_are_parsed_by_the_models_of_their_variants():
    parsed = parse_blocks({"deep": {"layers": 2, "dropout": 0.5}}, FAMILY)
    assert parsed == {"deep": Reader(layers=2, dropout=0.5)}
    assert chosen(["plain"], parsed) == {}
    assert chosen(["deep", "deep"], parsed) == {"deep": {"layers": 2, "dropout": 0.5}}
    assert settings_of("plain", parsed) == NoSettings()


def test_a_family_without_keys_needs_no_blocks():
    assert parse_blocks(None, {"plain": Variant(print)}) == {}


def test_a_missing_block_gets_the_lines_to_paste():
    with pytest.raises(ValueError, match="missing 'deep.layers', 'deep.dropout'; add these lines") as caught:
        parse_blocks(None, FAMILY)
    assert str(caught.value).endswith("to the block:\n    deep:\n      layers: 2\n      dropout: …")


@pytest.mark.parametrize("value", [3, ["deep"], "deep"])
def test_something_else_than_blocks_is_refused(value):
    with pytest.raises(ValueError, match="expected a block per variant, got "):
        parse_blocks(value, FAMILY)


def test_something_else_than_keys_in_a_block_is_refused():
    with pytest.raises(ValueError, match="deep: expected keys and values, got 3"):
        parse_blocks({"deep": 3}, FAMILY)
