"""Closed-form alignment of images and captions: a model without training by steps.

Images are rows of features, captions are weighted sums over their words (`fne.text.bags`). From the second
moments of all training pairs, linear algebra gives a linear map of each side into a joint space. The result
has the form of a trained model: image head `linear_bias`, text encoder `tfidf` or, for rows of captions,
`rows`, cosine similarity.

Only second moments are in memory (`fne.matching.second_moments`): half of (features, features), one factor,
(features, text_dim) and (text_dim, text_dim). Images are read in blocks, in the order of the store. The grid
is tried in float32, which is enough to compare its points. The chosen point is fitted in float64.

Every method of `METHODS` is called as `method(solution, regularization, dim)`. It returns an `Axes`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fne.core.errors import InputError
from fne.evaluation.metrics.ranks import rank
from fne.evaluation.metrics.recall import sum_of_recalls, summarize
from fne.matching.data import MatchingInputs
from fne.matching.model import Matcher, Shape
from fne.matching.second_moments import AlignmentError, FewImages, PairMoments, Solution
from fne.matching.settings import ClosedForm
from fne.matching.similarities import cosine
from fne.store.layout import count_views, mean_of_views, value_fault
from fne.store.rows import Rows
from fne.text.bags import (
    Bags,
    WordFeatures,
    inverse_document_frequencies,
    mean_features,
    row_features,
    tfidf_features,
)

BLOCK = 1024  # images read at once
# The weights of a model that reads rows of captions.
ROWS_WEIGHT = "text_encoder.head.weight"
NUMBER = 8  # bytes of a float64
# Rows of fewer images than features are kept in memory up to this size.
FEW_BYTES = 2**30
# With less regularization than this, float32 may be too coarse to try the grid.
COARSE = 1e-3
# A holdout takes at most this fraction of the training images.
MOST_HELD = 0.2


@dataclass(frozen=True)
class CaptionedImages:
    """The captions of some images: those of the first image, then those of the second, and so on."""

    ids: list[str]
    counts: np.ndarray  # (images): captions per image
    bags: Bags

    @classmethod
    def of(cls, ids: Sequence[str], captions: Sequence[Sequence[np.ndarray]]) -> "CaptionedImages":
        """Join images, each with its captions as arrays of word numbers."""
        counts = np.array([len(each) for each in captions], dtype=np.int64)
        return cls(list(ids), counts, Bags.of([caption for each in captions for caption in each]))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def owners(self) -> np.ndarray:
        """The position of each caption's image (captions)."""
        return np.repeat(np.arange(len(self)), self.counts)

    def select(self, positions: Sequence[int] | np.ndarray) -> "CaptionedImages":
        """Return some of the images, in the given order."""
        starts = np.cumsum(self.counts) - self.counts
        chosen = [np.arange(starts[each], starts[each] + self.counts[each]) for each in positions]
        captions = np.concatenate([np.empty(0, dtype=np.int64), *chosen])
        return CaptionedImages(
            [self.ids[each] for each in positions], self.counts[positions], self.bags.select(captions)
        )


@dataclass(frozen=True)
class Trial:
    """A point of the grid and the sum of its recalls."""

    image_regularization: float
    text_regularization: float
    power: float
    rsum: float


@dataclass(frozen=True)
class Alignment:
    """The weights of a model by their names in the `Matcher`, in float32, and how they were chosen."""

    state: dict[str, Tensor]
    chosen: Trial
    trials: list[Trial]


def matcher_of(state: dict[str, Tensor]) -> Matcher:
    """Return the model with the weights of an alignment."""
    dim, features = state["image_head.weight"].shape
    if ROWS_WEIGHT in state:
        text = ("rows", 0, state[ROWS_WEIGHT].shape[1])
    else:
        text = ("tfidf", len(state["text_encoder.words.weight"]), dim + 1)
    with torch.device("meta"):
        matcher = Matcher(Shape("linear_bias", text[0], "cosine", False, features, *text[1:], dim))
    matcher.load_state_dict(state, assign=True)
    return matcher


@dataclass(frozen=True)
class Axes:
    """The axes of the joint space."""

    of_images: Tensor  # the map of the text features that are predicted from images (text_dim, dim)
    of_text: Tensor  # the map of the text features (text_dim, dim)
    scales: Tensor  # what both sides are multiplied by, to the chosen power (dim)


def cca(solution: Solution, regularization: float, dim: int) -> Axes:
    """Regularized canonical correlation analysis.

    The axes of a side are uncorrelated, and those of the two sides correlate pairwise, in falling order. The
    scales are the canonical correlations.
    """
    factor = torch.linalg.cholesky(_regularized(solution.text_covariance, regularization))
    half = torch.linalg.solve_triangular(factor, solution.predicted_covariance, upper=False)
    squared = torch.linalg.solve_triangular(factor, half.T, upper=False)
    values, vectors = torch.linalg.eigh((squared + squared.T) / 2)
    correlations = values.flip(0)[:dim].clamp(min=torch.finfo(values.dtype).eps).sqrt()
    of_text = torch.linalg.solve_triangular(factor.T, vectors.flip(1)[:, :dim], upper=True)
    return Axes(of_text / correlations, of_text, correlations)


def ridge(solution: Solution, regularization: float, dim: int) -> Axes:
    """Ridge regression: an image is where the regression predicts its captions.

    The axes are the principal components of the text features, and the scales are the inverse of their
    deviations: with power 0 text features are compared as they are, with power 1 they are whitened.
    """
    values, vectors = torch.linalg.eigh(_regularized(solution.text_covariance, regularization))
    axes = vectors.flip(1)[:, :dim]
    return Axes(axes, axes, values.flip(0)[:dim].rsqrt())


def fit(
    rows: Rows,
    training: CaptionedImages,
    validation: CaptionedImages | None,
    words: int,
    method: str,
    settings: ClosedForm,
    vectors: np.ndarray | None = None,
    memory: int | None = None,
    text: WordFeatures | None = None,
) -> Alignment:
    """Align the images and captions of a training split.

    Every point of the grid is fitted without the images that it is scored on: the validation images, or
    training images that are drawn by the seed. The best sum of recalls wins, the first of equal ones in the
    order of the lists. In the second case the final maps are fitted on all training images.

    Args:
        validation: not used with `choose_on: train`.
        words: the size of the vocabulary.
        vectors: word vectors (words, dim), with `text: vectors`; with `text: rows`, the row of every caption.
        memory: the bytes that may be used; by default the memory of the machine.
        text: what `word_features` returns for the same captions and settings, if it is known already.

    Raises:
        AlignmentError: if there is too little memory, or too few images, or if they do not vary.
    """
    fitted_on, judged_by = _divide(training, validation, settings)
    if text is None:
        text = word_features(training.bags, words, settings, vectors, memory)
    features = rows.features // count_views(rows.layers)
    moments: PairMoments | FewImages
    if len(training) < features and NUMBER * len(training) * features <= FEW_BYTES:
        moments = FewImages(features, text.dim)
    else:
        needed, size = needed_memory(features, text.dim), NUMBER * features**2 / 2e9
        what = f"the second moment of {features:,} image features ({size:.1f} GB) and its factor"
        _refuse_large(needed, what, "keep fewer layers (embed.layers)", memory)
        moments = PairMoments(features, text.dim)
    single = replace(text, table=text.table.float())
    _add(moments, rows, fitted_on, single)
    trials = _try_grid(moments, rows, judged_by, single, method, settings)
    best = max(trials, key=lambda trial: trial.rsum)  # the first of equal ones
    if settings.choose_on == "train":
        _add(moments, rows, judged_by, single)
    solution = moments.solve(best.image_regularization)
    axes = METHODS[method](solution, best.text_regularization, settings.dim)
    return _alignment(solution, axes, text, best, trials)


def align_pairs(
    inputs: MatchingInputs, method: str, settings: ClosedForm, text: WordFeatures | None = None
) -> Alignment:
    """Align the training pairs of a stage's inputs; arguments and errors are those of `fit`."""
    training, validation = (
        CaptionedImages.of([record.id for record in pairs.captioned], pairs.word_numbers())
        for pairs in (inputs.training, inputs.validation)
    )
    given = inputs.captions or inputs.vectors
    vectors = given.values if given else None
    return fit(inputs.rows.store, training, validation, inputs.words, method, settings, vectors, text=text)


def needed_memory(features: int, text_dim: int) -> int:
    """Return about how many bytes the second moments, a factor of the first and the blocks of images take.

    Example:
        >>> f"{needed_memory(12416, 600) / 1e9:.1f} GB"
        '2.4 GB'
    """
    blocks = 3 * BLOCK * features
    return NUMBER * (3 * features**2 // 2 + 4 * features * text_dim + 8 * text_dim**2 + blocks)


def _divide(
    training: CaptionedImages, validation: CaptionedImages | None, settings: ClosedForm
) -> tuple[CaptionedImages, CaptionedImages]:
    """Return the images that the grid is fitted on, and those that it is scored on."""
    held = min(settings.holdout, int(MOST_HELD * len(training)))
    least = 2 if settings.choose_on == "val" else int(1 / MOST_HELD)
    if len(training) < least:
        raise AlignmentError(
            f"the training split has {len(training)} captioned images; closed-form alignment needs at least "
            f"{least}; see `catalog` in params.yaml"
        )
    if settings.choose_on == "val":
        if validation is None or not len(validation):
            raise AlignmentError(
                "there are no captioned validation images to choose settings by; use choose_on: train"
            )
        return training, validation
    order = np.random.default_rng(settings.seed).permutation(len(training))
    return training.select(np.sort(order[held:])), training.select(np.sort(order[:held]))


def word_features(
    bags: Bags,
    words: int,
    settings: ClosedForm,
    vectors: np.ndarray | None = None,
    memory: int | None = None,
) -> WordFeatures:
    """Return the features of captions, which do not depend on the images; arguments as for `fit`."""
    if settings.text == "rows":
        if vectors is None or not np.isfinite(vectors).all():
            raise AlignmentError("text: rows needs finite rows of captions; set tokenize.vectors to a store")
        if settings.text_dim:
            size = vectors.shape[1]
            what = f"the second moment of {size:,} values of captions"
            _refuse_large(3 * NUMBER * size**2, what, "keep fewer layers (embed_text.layers)", memory)
        return row_features(vectors, bags.words, settings.text_dim)
    if settings.text == "vectors":
        if vectors is None or len(vectors) != words or not np.isfinite(vectors).all():
            found = (
                "none" if vectors is None else f"an array of {vectors.shape}, or values that are not finite"
            )
            raise AlignmentError(f"text: vectors needs a vector for each of the {words} words, got {found}")
        return mean_features(vectors)
    weights = inverse_document_frequencies(bags, words, settings.min_count)
    kept = int(np.count_nonzero(weights))
    if not kept:
        raise AlignmentError(
            f"no word is in at least {settings.min_count} training captions, but not in all; lower min_count"
        )
    _refuse_large(3 * NUMBER * kept**2, f"the second moment of {kept:,} words", "raise min_count", memory)
    return tfidf_features(bags, weights, settings.text_dim)


def _refuse_large(needed: int, what: str, remedy: str, memory: int | None) -> None:
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if memory is None else memory
    if needed > available:
        raise AlignmentError(
            f"closed-form alignment needs {needed / 1e9:.1f} GB of memory for {what}, but there are "
            f"{available / 1e9:.1f} GB; {remedy}"
        )


def _add(moments: PairMoments | FewImages, rows: Rows, images: CaptionedImages, text: WordFeatures) -> None:
    """Add images and their captions to the moments, in the order of the store."""
    place = {image_id: position for position, image_id in enumerate(images.ids)}
    order = [place[image_id] for image_id in rows.ids if image_id in place]
    for start in range(0, len(order), BLOCK):
        chosen = images.select(order[start : start + BLOCK])
        moments.add(_read(rows, chosen.ids), text.of(chosen.bags), torch.from_numpy(chosen.counts))


def _read(rows: Rows, ids: Sequence[str]) -> Tensor:
    """Return rows of the store (ids, features) in float32."""
    block = rows.read(ids)
    if not np.isfinite(block).all():
        fault = value_fault(block, rows.dtype, ids, rows.layers)
        raise InputError(f"{rows.artifact.path}: {fault}; run `dvc repro embed`")
    return torch.from_numpy(mean_of_views(block.astype(np.float32, copy=False), count_views(rows.layers)))


def _try_grid(
    moments: PairMoments | FewImages,
    rows: Rows,
    judged_by: CaptionedImages,
    text: WordFeatures,
    method: str,
    settings: ClosedForm,
) -> list[Trial]:
    """Return the sum of recalls of every point of the grid, in the order of the lists."""
    captions, owners = text.of(judged_by.bags), torch.from_numpy(judged_by.owners)
    least = min(*settings.image_regularization, *settings.text_regularization)
    dtype = torch.float32 if least >= COARSE else torch.float64
    captions = captions.to(dtype)
    trials = []
    for image_regularization in settings.image_regularization:
        solution = moments.solve(image_regularization, dtype)
        predicted = torch.cat(
            [
                (_read(rows, judged_by.ids[start : start + BLOCK]).to(dtype) - solution.image_mean)
                @ solution.regression
                for start in range(0, len(judged_by), BLOCK)
            ]
        )
        for text_regularization in settings.text_regularization:
            axes = METHODS[method](solution, text_regularization, settings.dim)
            images = predicted @ axes.of_images  # (images, dim)
            sentences = (captions - solution.text_mean) @ axes.of_text  # (captions, dim)
            for power in settings.power:
                scales = axes.scales**power
                rsum = _rsum(images * scales, sentences * scales, owners)
                trials.append(Trial(image_regularization, text_regularization, power, rsum))
    return trials


def _rsum(images: Tensor, captions: Tensor, owners: Tensor) -> float:
    images, captions = (functional.normalize(each, dim=1).float() for each in (images, captions))
    ranking = rank(images, captions, owners, cosine, top=0)
    return sum_of_recalls(summarize(ranking.image_ranks.numpy()), summarize(ranking.caption_ranks.numpy()))


def _alignment(
    solution: Solution, axes: Axes, text: WordFeatures, best: Trial, trials: list[Trial]
) -> Alignment:
    """Fold means, axes and scales into one linear map with a bias for each side."""
    scales = axes.scales**best.power
    of_images = solution.regression @ axes.of_images * scales  # (features, dim)
    of_text = axes.of_text * scales  # (text_dim, dim)
    text_bias = -solution.text_mean @ of_text
    state = {"image_head.weight": of_images.T, "image_head.bias": -solution.image_mean @ of_images}
    if text.components:
        of_rows = text.components.basis @ of_text  # (row, dim)
        state |= {
            ROWS_WEIGHT: of_rows.T,
            "text_encoder.head.bias": text_bias - text.components.mean @ of_rows,
        }
    else:
        weights = torch.from_numpy(text.weights)[:, None]
        state |= {
            "text_encoder.words.weight": torch.cat([weights * (text.table @ of_text), weights], dim=1),
            # The words are vectors of the joint space already.
            "text_encoder.map.weight": torch.eye(len(text_bias)),
            "text_encoder.map.bias": text_bias,
            "text_encoder.order": torch.tensor([text.order]),
        }
    return Alignment({name: value.float().contiguous() for name, value in state.items()}, best, trials)


def _regularized(covariance: Tensor, regularization: float) -> Tensor:
    """Return a covariance with a multiple of its mean variance added to the diagonal."""
    result = covariance.clone()
    result.diagonal().add_(regularization * covariance.diagonal().mean())
    return result


METHODS: dict[str, Callable[[Solution, float, int], Axes]] = {"cca": cca, "ridge": ridge}
