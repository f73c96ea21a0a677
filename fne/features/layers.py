"""Which layers of a store an embedding keeps."""

from collections.abc import Sequence

ALL = "all"
# The layers whose names begin so; the same in `params.yaml`.
GROUPS = ("conv", "fc")


def kept_layers(layers: Sequence[str], choice: str | Sequence[str]) -> list[str]:
    """Return the names of the layers that are kept, in the order of the store.

    Args:
        layers: the names of all layers.
        choice: `all`, the name of a group, or a list of layer names.

    Raises:
        ValueError: naming what there is not, and the layers there are.

    Example:
        >>> kept_layers(["conv1", "conv2", "fc6"], "conv")
        ['conv1', 'conv2']
    """
    if choice == ALL:
        return list(layers)
    if isinstance(choice, str):
        kept = [layer for layer in layers if layer.startswith(choice)]
        if not kept:
            raise ValueError(f"has no {choice} layers; it has {', '.join(layers)}")
        return kept
    missing = [layer for layer in choice if layer not in layers]
    if missing:
        raise ValueError(f"has no layer '{missing[0]}'; it has {', '.join(layers)}")
    return [layer for layer in layers if layer in choice]
