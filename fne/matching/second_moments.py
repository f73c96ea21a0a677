"""The second moments of pairs of image features and text features, and the ridge regression between them.

With 12,416 features they take 2.5 GB, however many images there are. The products of a block are computed in
float32, of values minus the mean of the first block, and added up in float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fne.core.errors import InputError

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
    """Sums and second moments of pairs of image features and text features, in float64.

    They are moments about the means of the first block, so products in float32 lose little.
    """

    def __init__(self, features: int, text_dim: int) -> None:
        self.pairs = 0
        self._origins: tuple[Tensor, Tensor] | None = None
        self._images = torch.zeros(features, dtype=torch.float64)
        self._text = torch.zeros(text_dim, dtype=torch.float64)
        # In these two, only the tiles on and above the diagonal are filled.
        self._image_image = torch.zeros((features, features), dtype=torch.float64)
        self._text_text = torch.zeros((text_dim, text_dim), dtype=torch.float64)
        self._image_text = torch.zeros((features, text_dim), dtype=torch.float64)

    def add(self, rows: Tensor, text: Tensor, counts: Tensor) -> None:
        """Add images (images, features) and captions (captions, text_dim), `counts` of them per image."""
        if self._origins is None:
            self._origins = rows.mean(dim=0), text.mean(dim=0)
        rows, text = rows - self._origins[0], text - self._origins[1]
        weighted = rows * counts[:, None]
        owners = torch.repeat_interleave(torch.arange(len(rows)), counts)
        sums = text.new_zeros((len(rows), text.shape[1])).index_add_(0, owners, text)
        self.pairs += len(text)
        self._images += weighted.sum(dim=0)
        self._text += text.sum(dim=0)
        self._image_text += rows.T @ sums
        add_upper(self._image_image, rows, weighted)
        add_upper(self._text_text, text, text)

    def solve(self, regularization: float, dtype: torch.dtype = torch.float64) -> Solution:
        """Return the ridge regression of the text features from the image features.

        The regularization is added to the variance of each feature, in units of their mean variance.
        """
        assert self._origins is not None
        image_mean, text_mean = self._images / self.pairs, self._text / self.pairs
        origin, text_origin = self._origins
        variance = self._image_image.diagonal() / self.pairs - image_mean.square()
        mean_variance = variance.mean()
        upper = self._text_text.triu() / self.pairs
        text_covariance = (upper + upper.triu(1).T).addr_(text_mean, text_mean, alpha=-1)
        _require_variation(mean_variance, origin + image_mean, text_covariance, text_origin + text_mean)
        covariance = (self._image_text / self.pairs).addr_(image_mean, text_mean, alpha=-1).to(dtype)
        work = torch.empty_like(self._image_image, dtype=dtype)
        for top in range(0, len(work), TILE):
            part = slice(top, top + TILE)
            moment = self._image_image[part] / self.pairs
            work[part] = moment.addr_(image_mean[part], image_mean, alpha=-1)
        work.diagonal().add_(regularization * mean_variance)
        # Column-major, the matrix is overwritten with its factor, without a second copy. Only its lower
        # triangle is read, which is the upper one of `work`.
        factor = work.mT
        failed = torch.empty((), dtype=torch.int32)
        torch.linalg.cholesky_ex(factor, out=(factor, failed))
        if failed:
            raise AlignmentError(
                f"the image features cannot be regularized with {regularization:g}; "
                "use larger values of image_regularization"
            )
        half = torch.linalg.solve_triangular(factor, covariance, upper=False)
        regression = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        means = (origin + image_mean).to(dtype), (text_origin + text_mean).to(dtype)
        return Solution(regression, *means, text_covariance.to(dtype), half.T @ half)


class FewImages:
    """The same as `Moments` for fewer images than features: it keeps the rows and solves (images, images)."""

    def __init__(self, features: int, text_dim: int) -> None:
        self.pairs = 0
        self._rows: list[Tensor] = []
        self._sums = [torch.zeros((0, text_dim), dtype=torch.float64)]
        self._counts = [torch.zeros(0, dtype=torch.int64)]
        self._text_text = torch.zeros((text_dim, text_dim), dtype=torch.float64)
        self._prepared: _Prepared | None = None

    def add(self, rows: Tensor, text: Tensor, counts: Tensor) -> None:
        """Add pairs of images and captions, as `Moments.add` does."""
        owners = torch.repeat_interleave(torch.arange(len(rows)), counts)
        self.pairs += len(text)
        self._prepared = None
        self._rows.append(rows)
        text = text.double()
        self._sums.append(text.new_zeros((len(rows), text.shape[1])).index_add_(0, owners, text))
        self._counts.append(counts)
        self._text_text.addmm_(text.T, text)

    def solve(self, regularization: float, dtype: torch.dtype = torch.float64) -> Solution:
        """Return the ridge regression of the text features, as `Moments.solve` does."""
        if self._prepared is None:
            self._prepared = self._prepare()
        known = self._prepared
        added = regularization * known.mean_variance
        work = known.gram.to(dtype, copy=True)
        work.diagonal().add_(added)
        captions = known.captions.to(dtype)
        dual = torch.cholesky_solve(captions, torch.linalg.cholesky(work.mT))  # only the upper half is filled
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
            add_upper(gram, part, part)
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
    mean_variance: Tensor, image_mean: Tensor, text_covariance: Tensor, text_mean: Tensor
) -> None:
    if mean_variance <= CONSTANT * (mean_variance + image_mean.square().mean()):
        raise AlignmentError(
            "the image features do not vary among the training images; nothing can be aligned"
        )
    if text_covariance.trace() <= CONSTANT * (text_covariance.trace() + text_mean.square().sum()):
        raise AlignmentError("all training captions have the same words; nothing can be aligned")


def add_upper(moment: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product (columns, columns) of blocks (rows, columns), in the tiles on and above the diagonal."""
    for top in range(0, len(moment), TILE):
        moment[top : top + TILE, top:] += left[:, top : top + TILE].T @ right[:, top:]
