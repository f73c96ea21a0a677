"""What is wrong with rows that are whole by their digest: values that no consumer can use."""

from collections.abc import Sequence

import numpy as np

from fne.store.layout import TERNARY, Layer

SLICE = 1 << 24  # bytes looked at in one go


def value_fault(block: np.ndarray, dtype: str, ids: Sequence[str], layers: Sequence[Layer]) -> str | None:
    """Return the first fault of a block of rows as a store keeps them, or None.

    Args:
        block: the rows (ids, numbers), for ternary ones their bit planes.
        dtype: the store's type.
        ids: the ids of the rows.
        layers: the named runs of columns.
    """
    find = _outside_ternary if dtype == TERNARY else _not_finite
    features = sum(layer.features for layer in layers)
    step = max(1, SLICE // max(1, block.itemsize * block.shape[1]))
    for start in range(0, len(block), step):
        place = find(block[start : start + step], features)
        if place is not None:
            row, column, value = place
            return (
                f"row {ids[start + row]!r} has {value} in layer '{layer_of(column, layers)}', column {column}"
            )
    return None


def layer_of(column: int, layers: Sequence[Layer]) -> str:
    """Return the name of the layer that a column belongs to.

    Example:
        >>> layer_of(2, [Layer("conv", 2), Layer("fc", 3)])
        'fc'
    """
    end = 0
    for layer in layers:
        end += layer.features
        if column < end:
            return layer.name
    return "none"


def _not_finite(block: np.ndarray, features: int) -> tuple[int, int, str] | None:
    finite = np.isfinite(block)
    if finite.all():
        return None
    row, column = (int(each) for each in np.argwhere(~finite)[0])
    return row, column, str(block[row, column])


def _outside_ternary(planes: np.ndarray, features: int) -> tuple[int, int, str] | None:
    """Find a value that is +1 and -1 at once, or one beyond the last feature."""
    half = planes.shape[1] // 2
    positive, negative = (np.unpackbits(plane, axis=1) for plane in (planes[:, :half], planes[:, half:]))
    wrong = positive & negative
    wrong[:, features:] = (positive | negative)[:, features:]
    if not wrong.any():
        return None
    row, column = (int(each) for each in np.argwhere(wrong)[0])
    return row, column, "neither -1, 0 nor +1"
