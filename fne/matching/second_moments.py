"""The second moments of pairs of image features and text features, and the ridge regression between them.

With 12,416 features they take 0.7 GB and a factor 1.2 GB, however many images there are. The products of a
block are computed in float32, of values minus the mean of the first block, and added up in float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.core.products import product

BLOCK = 1024  # features of a part of a Gram matrix
TILE = 512  # columns of a part of a second moment
# The variance of constant features is not exactly zero after rounding.
CONSTANT = 1e-12


class AlignmentError(InputError):
    """Intact inputs cannot be aligned in closed form; training may still work."""


@dataclass(frozen=True)
class Solution:
    """The ridge regression of text features from image features, and the moments of the text features."""

    regression: Tensor  # (features, text_dim)
    image_mean: Tensor  # (features)
    text_mean: Tensor  # (text_dim)
    text_covariance: Tensor  # (text_dim, text_dim)
    predicted_covariance: Tensor  # text features with their prediction (text_dim, text_dim)


class Moments:
    """Means and second moments of columns, about the mean of the first rows that are added.

    So products in float32 lose little. Of the products, only tiles on and above the diagonal are kept.
    """

    def __init__(self, columns: int, dtype: torch.dtype = torch.float64) -> None:
        self.count = 0
        self._every = slice(0, columns)
        self._origin = torch.zeros(columns)
        self._sums = torch.zeros(columns, dtype=torch.float64)
        self._strips = {
            top: torch.zeros((min(TILE, columns - top), columns - top), dtype=dtype)
            for top in range(0, columns, TILE)
        }

    def add(self, rows: Tensor, counts: Tensor | None = None) -> Tensor:
        """Add rows (rows, columns), each as often as `counts` says, or once; return them about the origin."""
        if not self.count:
            self._origin = rows.mean(dim=0)
        rows = rows - self._origin
        weighted = rows if counts is None else rows * counts[:, None]
        self.count += len(rows) if counts is None else int(counts.sum())
        self._sums += weighted.sum(dim=0)
        for top, strip in self._strips.items():
            strip += product(rows[:, top : top + len(strip)].T, weighted[:, top:])
        return rows

    @property
    def shift(self) -> Tensor:
        """The mean of each column about the origin."""
        return self._sums / self.count

    @property
    def mean(self) -> Tensor:
        """The mean of each column."""
        return self._origin + self.shift

    def variance(self, columns: slice | None = None) -> float:
        """Return the sum of the variances of some columns."""
        products = torch.cat([strip.diagonal() for strip in self._strips.values()]).double() / self.count
        return float((products - self.shift.square())[columns or self._every].clamp(min=0).sum())

    def covariance(
        self, rows: slice | None = None, columns: slice | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Return covariances (rows, columns); `columns` start where `rows` do, or later.

        Of a square part, only the upper triangle counts.
        """
        rows, columns = rows or self._every, columns or self._every
        kept = self._strips[0].dtype
        shift = self.shift.to(kept)
        found = torch.zeros(rows.stop - rows.start, columns.stop - columns.start, dtype=dtype or kept)
        for top, strip in self._strips.items():
            start, stop, left = (
                max(top, rows.start),
                min(top + len(strip), rows.stop),
                max(top, columns.start),
            )
            if start < stop:
                part = strip[start - top : stop - top, left - top : columns.stop - top] / self.count
                part.addr_(shift[start:stop], shift[left : columns.stop], alpha=-1)
                found[start - rows.start : stop - rows.start, left - columns.start :] = part
        return found


def symmetric(upper: Tensor) -> Tensor:
    """Return the symmetric matrix of an upper triangle."""
    return upper.triu() + upper.triu(1).T


def solve_ridge(covariance: Tensor, targets: Tensor, regularization: float) -> tuple[Tensor, Tensor]:
    """Return ridge regression weights, and the covariance of the targets with what they predict.

    Both are NaN if the regularization is too small. The covariance is overwritten; only its upper triangle
    is read.

    Args:
        targets: the covariance of the features with the targets.
        regularization: what is added to the variance of each feature.
    """
    covariance.diagonal().add_(regularization)
    # Column-major, the matrix is overwritten with its factor, without a second copy.
    factor, failed = covariance.mT, torch.empty((), dtype=torch.int32)
    torch.linalg.cholesky_ex(factor, out=(factor, failed))
    half = torch.linalg.solve_triangular(factor, targets, upper=False)
    if failed:
        half.fill_(torch.nan)
    return torch.linalg.solve_triangular(factor.mT, half, upper=True), half.T @ half


class PairMoments:
    """Second moments of pairs of image features and text features, in float64."""

    def __init__(self, features: int, text_dim: int) -> None:
        self._images, self._text = Moments(features), Moments(text_dim)
        self._products = torch.zeros((features, text_dim), dtype=torch.float64)

    def add(self, rows: Tensor, text: Tensor, counts: Tensor) -> None:
        """Add images (images, features) and captions (captions, text_dim), `counts` of them per image."""
        self._products += product(self._images.add(rows, counts).T, _sums(self._text.add(text), counts))

    def solve(self, regularization: float, dtype: torch.dtype = torch.float64) -> Solution:
        """Return the ridge regression of the text features from the image features.

        The regularization is added to the variance of each feature, in units of their mean variance.
        """
        images, text = self._images, self._text
        variance = images.variance() / len(self._products)
        text_covariance = symmetric(text.covariance())
        _require_variation(variance, images.mean, text_covariance, text.mean)
        products = (self._products / text.count).addr_(images.shift, text.shift, alpha=-1)
        covariance = images.covariance(dtype=dtype)
        regression, predicted = solve_ridge(covariance, products.to(dtype), regularization * variance)
        if not predicted.isfinite().all():
            raise AlignmentError(
                f"the image features cannot be regularized with {regularization:g}; "
                "use larger values of image_regularization"
            )
        means = images.mean.to(dtype), text.mean.to(dtype)
        return Solution(regression, *means, text_covariance.to(dtype), predicted)


class FewImages:
    """The same for fewer images than features: it keeps the rows and solves (images, images)."""

    def __init__(self, features: int, text_dim: int) -> None:
        self.pairs = 0
        self._rows: list[Tensor] = []
        self._sums = [torch.zeros((0, text_dim), dtype=torch.float64)]
        self._counts = [torch.zeros(0, dtype=torch.int64)]
        self._text_text = torch.zeros((text_dim, text_dim), dtype=torch.float64)
        self._prepared: _Prepared | None = None

    def add(self, rows: Tensor, text: Tensor, counts: Tensor) -> None:
        """Add pairs of images and captions, as `PairMoments.add` does."""
        self.pairs += len(text)
        self._prepared = None
        self._rows.append(rows)
        text = text.double()
        self._sums.append(_sums(text, counts))
        self._counts.append(counts)
        self._text_text.addmm_(text.T, text)

    def solve(self, regularization: float, dtype: torch.dtype = torch.float64) -> Solution:
        """Return the ridge regression of the text features, as `PairMoments.solve` does."""
        if self._prepared is None:
            self._prepared = self._prepare()
        known = self._prepared
        added = regularization * known.mean_variance
        gram = known.gram.to(dtype, copy=True)
        gram.diagonal().add_(added)
        captions = known.captions.to(dtype)
        dual = torch.cholesky_solve(captions, torch.linalg.cholesky(gram.mT))  # only the upper half is filled
        regression = known.rows.to(dtype).T @ dual / self.pairs
        # The Gram matrix times the dual solution, without that product.
        predicted = captions.T @ (captions - added * dual) / self.pairs
        means = known.image_mean.to(dtype), known.text_mean.to(dtype)
        return Solution(regression, *means, known.text_covariance.to(dtype), (predicted + predicted.T) / 2)

    def _prepare(self) -> "_Prepared":
        """Return what does not depend on the regularization."""
        rows, sums, counts = (torch.cat(each) for each in (self._rows, self._sums, self._counts))
        weights = counts.double()[:, None]
        image_mean = (weights * rows).sum(dim=0) / self.pairs
        text_mean = sums.sum(dim=0) / self.pairs
        text_covariance = self._text_text / self.pairs - torch.outer(text_mean, text_mean)
        roots = weights.sqrt()
        centered = roots.to(rows.dtype) * (rows - image_mean.to(rows.dtype))  # (images, features)
        mean_variance = centered.double().square().sum(dim=0).mean() / self.pairs
        _require_variation(mean_variance, image_mean, text_covariance, text_mean)
        captions = (sums - weights * text_mean) / roots  # (images, text_dim)
        gram = torch.zeros((len(rows), len(rows)), dtype=torch.float64)
        for first in range(0, rows.shape[1], BLOCK):
            part = centered[:, first : first + BLOCK].T
            for top in range(0, len(gram), TILE):
                gram[top : top + TILE, top:] += product(part[:, top : top + TILE].T, part[:, top:])
        gram /= self.pairs
        return _Prepared(centered, captions, gram, mean_variance, image_mean, text_mean, text_covariance)


@dataclass(frozen=True)
class _Prepared:
    """What `FewImages` needs for every regularization: weighted rows, their captions and moments."""

    rows: Tensor  # (images, features), centered
    captions: Tensor  # (images, text_dim), centered
    gram: Tensor  # (images, images); only the tiles on and above the diagonal are filled
    mean_variance: Tensor
    image_mean: Tensor
    text_mean: Tensor
    text_covariance: Tensor


def _require_variation(
    mean_variance: float | Tensor, image_mean: Tensor, text_covariance: Tensor, text_mean: Tensor
) -> None:
    if mean_variance <= CONSTANT * (mean_variance + image_mean.square().mean()):
        raise AlignmentError(
            "the image features do not vary among the training images; nothing can be aligned"
        )
    if text_covariance.trace() <= CONSTANT * (text_covariance.trace() + text_mean.square().sum()):
        raise AlignmentError("all training captions have the same words; nothing can be aligned")


def _sums(text: Tensor, counts: Tensor) -> Tensor:
    """Return the sum of the captions of each image (images, text_dim), `counts` of them per image."""
    owners = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return text.new_zeros((len(counts), text.shape[1])).index_add_(0, owners, text)
