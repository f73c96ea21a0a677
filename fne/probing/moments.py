"""Second moments of all columns at once: features of all layers, then captions, then labels.

One pass over the images is enough for the closed form of any layers that stand side by side, for linear
probes and for the similarity of any two layers: each needs some columns of one matrix.
"""

import torch
from torch import Tensor

from fne.matching.second_moments import CONSTANT, Solution, add_upper

WIDE = 8192  # columns up to which products are added up in float64, which then take half a gigabyte


class Moments:
    """Means and second moments of columns, about the mean of the first rows that are added."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self._origin: Tensor | None = None
        self._sums = torch.zeros(columns, dtype=torch.float64)
        # Only the tiles on and above the diagonal are filled.
        dtype = torch.float64 if columns <= WIDE else torch.float32
        self._products = torch.zeros((columns, columns), dtype=dtype)

    def add(self, rows: Tensor) -> None:
        """Add rows (rows, columns)."""
        if self._origin is None:
            self._origin = rows.mean(dim=0)
        rows = rows - self._origin
        self.count += len(rows)
        self._sums += rows.sum(dim=0)
        add_upper(self._products, rows, rows)

    @property
    def mean(self) -> Tensor:
        """The mean of each column."""
        assert self._origin is not None
        return self._sums / self.count + self._origin

    def covariance(self, rows: slice, columns: slice) -> Tensor:
        """Return covariances (rows, columns); `columns` start where `rows` do, or later.

        Of a square part, only the upper triangle counts.
        """
        mean = self._sums / self.count
        block = self._products[rows, columns] / self.count
        return block.addr_(mean[rows].to(block.dtype), mean[columns].to(block.dtype), alpha=-1)

    def square(self, rows: slice, columns: slice) -> float:
        """Return the sum of squared covariances of two groups of columns."""
        block = self.covariance(rows, columns)
        if rows != columns:
            return float(block.square().sum(dtype=torch.float64))
        upper = 2 * block.triu().square().sum(dtype=torch.float64)
        return float(upper - block.diagonal().square().sum(dtype=torch.float64))

    def variance(self, columns: slice) -> float:
        """Return the sum of the variances of some columns."""
        squares = self._products.diagonal()[columns].double() / self.count
        return float((squares - (self._sums[columns] / self.count).square()).clamp(min=0).sum())

    def regression(self, features: slice, targets: slice, regularization: float) -> tuple[Tensor, Tensor]:
        """Return ridge regression weights, and the covariance of the targets with what they predict.

        `regularization` is added to the variance of each feature.
        """
        work = self.covariance(features, features).float()
        work.diagonal().add_(regularization)
        # Column-major, the matrix is overwritten with its factor; only its lower triangle is read.
        factor = work.mT
        torch.linalg.cholesky_ex(factor, out=(factor, torch.empty((), dtype=torch.int32)))
        half = torch.linalg.solve_triangular(factor, self.covariance(features, targets).float(), upper=False)
        return torch.linalg.solve_triangular(factor.mT, half, upper=True), half.T @ half

    def solution(
        self, features: slice, text: slice, text_covariance: Tensor, regularization: float
    ) -> Solution:
        """Return the regression of the text columns, as `fne.matching.closed_form.cca` takes it."""
        weights, predicted = self.regression(features, text, regularization)
        mean = self.mean.float()
        return Solution(weights, mean[features], mean[text], text_covariance, predicted)


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
            squares[first, second] = squares[second, first] = moments.square(rows, layers[second])
    criterion = (
        count**2 * squares
        - products
        + torch.outer(sums, sums) / ((count - 1) * (count - 2))
        - 2 * products / (count - 2)
    )
    own = criterion.diagonal().clamp(min=0).sqrt()
    scale = torch.outer(own, own)
    return torch.where(scale > CONSTANT * sums.square().max(), criterion / scale, torch.nan).clamp(-1, 1)
