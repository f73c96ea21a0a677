"""Ternary discretization of activations.

A full-network embedding keeps, of every feature of an image, only whether it is
unusually weak (-1), ordinary (0) or unusually strong (+1) among the training images.
"""

import numpy as np

from fne.features.statistics import Statistics, loopable
from fne.features.threads import share_out


def discretize(block: np.ndarray, statistics: Statistics, low: float, high: float) -> np.ndarray:
    """Map activations (images, features) to -1, 0 or +1 by their z-scores.

    A z-score equal to a threshold is ordinary, and so is every value of a feature that
    never varies among the training images, whatever the thresholds. Values must be finite.

    Example:
        >>> ordinary = Statistics(np.array([1.0, 1.0, 5.0]), np.array([2.0, 2.0, 0.0]), [])
        >>> discretize(np.array([[0.0, 1.25, 9.0], [0.5, 1.4, 5.0]]), ordinary, low=-0.25, high=0.15)
        array([[-1,  0,  0],
               [ 0,  1,  0]], dtype=int8)
    """
    from fne.features.loops import ternary_rows

    wide = loopable(block)
    result = np.empty(block.shape, dtype=np.int8)
    mean, deviation = statistics.mean, statistics.deviation
    share_out(
        lambda first, last: ternary_rows(wide, mean, deviation, low, high, result, first, last), len(block)
    )
    return result
