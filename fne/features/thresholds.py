"""Where the two thresholds of a ternary embedding come from.

Every way is called as `way(activations, statistics, columns, low, high)` with an open store
of activations, the statistics of all its features and the columns that are kept, and
returns two z-scores: one pair for the whole embedding, as in the paper.
"""

import numpy as np

from fne.core.errors import InputError
from fne.features.statistics import Statistics, loopable
from fne.store.rows import Rows

# Bins of a thousandth of a deviation. Beyond 64 deviations lies less than one in 4,096 z-scores,
# because those of a feature have variance 1.
REACH = 64
STEPS = 1024


def fixed(
    activations: Rows, statistics: Statistics, columns: np.ndarray | slice, low: float, high: float
) -> tuple[float, float]:
    """Take `low` and `high` as they are."""
    return low, high


def quantiles(
    activations: Rows, statistics: Statistics, columns: np.ndarray | slice, low: float, high: float
) -> tuple[float, float]:
    """Find the z-scores below which the shares `low` and `high` of all z-scores lie.

    They are those of the kept features that vary, over the images that the statistics were
    fitted on, counted in bins of 1 / 1024; a threshold is the upper end of its bin.

    Raises:
        InputError: if the two fall together or lie beyond the bins.
    """
    from fne.features.loops import count_scores

    kept = np.arange(activations.features)[columns]
    kept = kept[statistics.varies[kept]]
    ordinary = statistics.only(kept)
    counts = np.zeros(2 * REACH * STEPS, dtype=np.int64)
    for _, block in activations.blocks(statistics.ids):
        count_scores(loopable(block[:, kept]), ordinary.mean, ordinary.deviation, REACH, STEPS, counts)
    if not counts.any():
        raise InputError(f"{activations.artifact.path}: no kept feature varies; there are no quantiles")
    found = [_quantile(counts, share) for share in (low, high)]
    if found[0] >= found[1]:
        raise InputError(
            f"params.yaml: section 'embed': the quantiles {low} and {high} are the same z-score, {found[0]}; "
            "choose shares further apart"
        )
    return found[0], found[1]


def _quantile(counts: np.ndarray, share: float) -> float:
    place = int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
    if place in (0, len(counts) - 1):
        raise InputError(
            f"params.yaml: section 'embed': the quantile {share} lies beyond {REACH} deviations; "
            "choose a share nearer to a half"
        )
    return (place + 1) / STEPS - REACH


THRESHOLDS = {"fixed": fixed, "quantiles": quantiles}
