"""What is read off the second moments of all columns: features of all layers, then captions, then labels.

One pass over the images is enough for the closed form of any layers that stand side by side, for linear
probes and for the similarity of any two layers: each needs some columns of one matrix.
"""

import torch
from torch import Tensor

from fne.matching.second_moments import CONSTANT, Moments, solve_ridge


def square(moments: Moments, rows: slice, columns: slice) -> float:
    """Return the sum of squared covariances of two groups of columns."""
    block = moments.covariance(rows, columns)
    if rows != columns:
        return float(block.square().sum(dtype=torch.float64))
    upper = 2 * block.triu().square().sum(dtype=torch.float64)
    return float(upper - block.diagonal().square().sum(dtype=torch.float64))


def regression(
    moments: Moments, features: slice, targets: slice, regularization: float
) -> tuple[Tensor, Tensor]:
    """Return what `solve_ridge` returns, of some columns from others."""
    covariance, products = (moments.covariance(features, each).float() for each in (features, targets))
    return solve_ridge(covariance, products, regularization)


def cka_map(moments: Moments, layers: list[slice], lengths: Tensor) -> Tensor:
    """Return the linear CKA of every layer with every other one (layers, layers), without bias.

    It is the unbiased estimate of the Hilbert-Schmidt independence criterion, so that many features and few
    images do not make everything look alike. Written with centered features it needs no matrix of images:
    products of features, and squared lengths.

    Args:
        lengths: the squared length of each image's centered features in each layer (images, layers).
    """
    count = moments.count
    products = lengths.T @ lengths
    sums = lengths.sum(dim=0)
    squares = torch.zeros_like(products)
    for first, rows in enumerate(layers):
        for second in range(first, len(layers)):
            squares[first, second] = squares[second, first] = square(moments, rows, layers[second])
    criterion = (
        count**2 * squares
        - products
        + torch.outer(sums, sums) / ((count - 1) * (count - 2))
        - 2 * products / (count - 2)
    )
    own = criterion.diagonal().clamp(min=0).sqrt()
    scale = torch.outer(own, own)
    return torch.where(scale > CONSTANT * sums.square().max(), criterion / scale, torch.nan).clamp(-1, 1)
