"""The phases of training: each with its own loss, margin, rate and length.

`params.yaml` writes a key of the phases as one value, which serves all phases, or as a
list with one value for each. Training with the sum of violations first and with the
worst one afterwards, for example, is `loss: [sum_hinge, max_hinge]`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Phase:
    """One phase; it starts from the best weights of those before."""

    loss: str
    margin: float
    learning_rate: float
    epochs: int
    patience: int


def unfold(values: Mapping[str, Sequence[Any]]) -> list[Phase]:
    """Return the phases that lists describe; a list of one value serves all phases.

    Raises:
        ValueError: if longer lists have different lengths, or one is empty.

    Example:
        >>> values = {"loss": ["max_hinge"], "margin": [0.2], "epochs": [9], "patience": [3]}
        >>> [(phase.loss, phase.learning_rate) for phase in unfold(values | {"learning_rate": [1e-3, 1e-4]})]
        [('max_hinge', 0.001), ('max_hinge', 0.0001)]
    """
    lengths = {key: len(each) for key, each in values.items() if len(each) != 1}
    if 0 in lengths.values() or len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise ValueError(f"lists of phases must have one value or equal lengths, but {found}")
    count = next(iter(lengths.values()), 1)
    return [
        Phase(**{key: each[number] if len(each) > 1 else each[0] for key, each in values.items()})
        for number in range(count)
    ]
