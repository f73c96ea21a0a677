"""Ternary discretization of z-scores.

A full-network embedding keeps, of every feature of an image, only whether it is
unusually weak (-1), ordinary (0) or unusually strong (+1) among the training images.
"""

import numpy as np


def discretize(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map z-scores to -1, 0 or +1; a score equal to a bound is ordinary.

    Raises:
        ValueError: if a score is NaN, which neither comparison would notice.

    Example:
        >>> discretize(np.array([-2.0, -0.25, 0.0, 0.15, 0.2]), low=-0.25, high=0.15)
        array([-1,  0,  0,  0,  1], dtype=int8)
    """
    if np.isnan(scores).any():
        raise ValueError(f"{np.isnan(scores).sum()} of {scores.size} scores are NaN")
    return (scores > high).astype(np.int8) - (scores < low).astype(np.int8)
