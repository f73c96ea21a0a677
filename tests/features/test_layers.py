import pytest

from fne.features.layers import kept_layers

NAMES = ["conv1_1", "conv1_2", "fc6", "fc7"]


@pytest.mark.parametrize(
    ("choice", "kept"),
    [("all", NAMES), ("conv", NAMES[:2]), ("fc", NAMES[2:]), (["fc7", "conv1_1"], ["conv1_1", "fc7"])],
)
def test_layers_are_kept_in_the_order_of_the_store(choice, kept):
    assert kept_layers(NAMES, choice) == kept


def test_a_group_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="^has no fc layers; it has conv1_1, conv1_2$"):
        kept_layers(NAMES[:2], "fc")


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="^has no layer 'fc'; it has conv1_1, conv1_2, fc6, fc7$"):
        kept_layers(NAMES, ["fc"])
