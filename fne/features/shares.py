"""What a ternary embedding keeps of each layer: its shares of -1, 0 and +1, and of dead features."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fne.store.layout import Layer

DIGITS = 4


class Shares:
    """Counts of -1, 0 and +1 in the rows added so far."""

    def __init__(self, layers: Sequence[Layer], varies: np.ndarray) -> None:
        """Start without rows.

        Args:
            layers: the layers of the rows.
            varies: for each feature whether it varies among the training images; one that does not is dead.
        """
        self._layers = layers
        self._varies = varies
        self._rows = 0
        self._minus = np.zeros(len(varies), dtype=np.int64)
        self._plus = np.zeros(len(varies), dtype=np.int64)

    def add(self, rows: np.ndarray) -> None:
        """Add rows of -1, 0 and +1 (rows, features)."""
        self._rows += len(rows)
        self._minus += np.count_nonzero(rows < 0, axis=0)
        self._plus += np.count_nonzero(rows > 0, axis=0)

    def by_layer(self) -> dict[str, dict[str, float]]:
        """Return each layer's shares: `minus`, `zero` and `plus` of its values, `dead` of its features."""
        shares, start = {}, 0
        for layer in self._layers:
            columns = slice(start, start + layer.features)
            values = max(1, layer.features * self._rows)
            minus = int(self._minus[columns].sum()) / values
            plus = int(self._plus[columns].sum()) / values
            dead = 1 - int(self._varies[columns].sum()) / max(1, layer.features)
            found = {"minus": minus, "zero": 1 - minus - plus, "plus": plus, "dead": dead}
            shares[layer.name] = {name: round(share, DIGITS) for name, share in found.items()}
            start += layer.features
        return shares


def in_words(settings: Mapping[str, Any]) -> list[str]:
    """Return the shares in the settings of some embeddings as the lines of a table; none if there are none.

    Example:
        >>> shares = {"fc7": {"minus": 0.4, "zero": 0.25, "plus": 0.35, "dead": 0.0}}
        >>> in_words({"shares": shares})
        ['layer     -1      0     +1   dead', 'fc7    40.0%  25.0%  35.0%   0.0%']
    """
    shares = settings.get("shares", {})
    if not shares:
        return []
    width = max(len("layer"), *map(len, shares))
    titles = "".join(f"{title:>7}" for title in ("-1", "0", "+1", "dead"))
    return [
        f"{'layer':<{width}}{titles}",
        *(
            f"{layer:<{width}}" + "".join(f"{share:>7.1%}" for share in each.values())
            for layer, each in shares.items()
        ),
    ]
