"""Measure what each layer of a store knows: of captions, of labels, and of the other layers.

The rows of each layer are scaled to length one, so that no layer outweighs another one. Training images are
read twice: once for the second moments, once for neighbors and lengths.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fne.core.errors import InputError
from fne.core.progress import Progress, progress
from fne.evaluation.intervals import RSUM, Ranked, draws, intervals, map_interval, percentiles
from fne.evaluation.metrics.ranks import rank
from fne.evaluation.metrics.recall import RECALLS, chance_of_rsum, retrieval_values
from fne.evaluation.metrics.tag_metrics import mean_average_precision
from fne.matching.closed_form import cca
from fne.matching.second_moments import CONSTANT, Moments, Solution, symmetric
from fne.matching.similarities import cosine
from fne.probing.images import LEAST, Images, Words, divide_gallery, images_of, known_labels
from fne.probing.moments import cka_map, regression, square
from fne.probing.neighbors import DISTANCES, Nearest, neighbors, unit
from fne.probing.settings import Layers
from fne.store.catalog import Captioned
from fne.store.layout import VIEW, count_views, mean_of_views, value_fault
from fne.store.rows import Rows
from fne.text.bags import WordFeatures, inverse_document_frequencies, tfidf_features

BLOCK = 1024  # images read at once
WIDE = 8192  # columns up to which products are added up in float64, which then take a quarter of a gigabyte
HELD = 0.2  # fraction of the training images that choose the regularization, at most
# As usual for the closed form of this project, where a grid chooses them.
TEXT_REGULARIZATION, POWER = 0.3, 1.5
SHOWN, PICTURES, MATCHES = 3, 3, 5  # layers, images and neighbors that the page shows
Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Columns that are measured together: a layer, or several that stand side by side."""

    kind: str  # layer, block, first, last or all
    name: str
    layers: slice


def parts_of(names: Sequence[str]) -> list[Part]:
    """Return what is measured of layers: each, blocks of them, from either end, and all.

    A block is what layers have in common before the last number of their names.

    Example:
        >>> [(part.kind, part.name) for part in parts_of(["conv1_1", "conv1_2", "fc6"])]
        ... # doctest: +NORMALIZE_WHITESPACE
        [('layer', 'conv1_1'), ('layer', 'conv1_2'), ('layer', 'fc6'), ('block', 'conv1'),
         ('first', 'to conv1_2'), ('last', 'from conv1_2'), ('all', 'all layers')]
    """
    count = len(names)
    parts = [Part("layer", name, slice(place, place + 1)) for place, name in enumerate(names)]
    groups = [
        (stem, len(list(own))) for stem, own in groupby(re.sub(r"[._]\d+$", "", each) for each in names)
    ]
    start = 0
    for stem, size in groups:
        if 1 < size < count:
            parts.append(Part("block", stem, slice(start, start + size)))
        start += size
    parts += [Part("first", f"to {names[end - 1]}", slice(0, end)) for end in range(2, count)]
    parts += [Part("last", f"from {names[start]}", slice(start, count)) for start in range(count - 2, 0, -1)]
    return parts + [Part("all", "all layers", slice(0, count))] * (count > 1)


def measure(rows: Rows, captioned: Sequence[Captioned], words: Words, settings: Layers) -> Json:
    """Return everything that is measured of the layers of a store, given the words of all captions."""
    run = _Run(rows, divide_gallery(captioned, settings.validation, settings.seed), words, settings)
    with progress("layers", run.work, unit="step") as shown:
        return run.measure(shown)


class _Run:
    """The layers of a store, and the images that they are measured on."""

    def __init__(self, rows: Rows, captioned: Sequence[Captioned], words: Words, settings: Layers) -> None:
        views = count_views(rows.layers)
        layers = rows.layers[: len(rows.layers) // views]
        self.rows, self.views, self.settings = rows, views, settings
        self.names = [layer.name.partition(VIEW)[0] for layer in layers]
        self.sizes = [layer.features for layer in layers]
        self.places = _slices(self.sizes)
        self.parts = parts_of(self.names)
        self.labels, self.single = known_labels(captioned, settings.labels)
        self.words = 1 + max((number for own in words.values() for number in own), default=0)
        random = np.random.default_rng(settings.seed)
        training = images_of(captioned, "train", rows.ids, words, self.labels)
        self.validation = images_of(captioned, "val", rows.ids, words, self.labels)
        drawn = random.permutation(len(self.validation.records))[: settings.validation]
        self.validation = self.validation.select(np.sort(drawn))
        if len(training.records) < LEAST or len(self.validation.records) < 2:
            raise InputError(
                f"{rows.artifact.path}: {len(training.records)} training and {len(self.validation.records)} "
                f"validation images have rows; layers are compared with at least {LEAST} and 2"
            )
        held = min(settings.holdout, int(HELD * len(training.records)))
        order = random.permutation(len(training.records))
        self.training = training
        self.held, self.fitted = (training.select(np.sort(each)) for each in (order[:held], order[held:]))
        self.text = self._text()
        steps = len(training.records) * (2 + (max(self.sizes) > len(training.records)))
        self.work = steps + len(self.parts)

    def _text(self) -> WordFeatures | None:
        """Return tf-idf features of the captions, and set their mean and covariance; None without any."""
        if self.training.captions is None:
            return None
        bags = self.training.captions.bags
        weights = inverse_document_frequencies(bags, self.words, self.settings.min_count)
        if not weights.any():
            return None
        exact = tfidf_features(bags, weights, self.settings.text_dim)
        found = WordFeatures(exact.table.float(), exact.weights, exact.order)
        moments = Moments(found.dim)
        for start in range(0, len(bags), BLOCK):
            moments.add(found.of(bags.select(np.arange(start, min(start + BLOCK, len(bags))))))
        self.text_mean = moments.mean.float()
        self.text_covariance = symmetric(moments.covariance().float())
        return found

    def measure(self, shown: Progress) -> Json:
        """Return everything that is measured, as the file has it."""
        self.bases = self._bases(shown)
        widths = [
            size if base is None else base[1].shape[1]
            for size, base in zip(self.sizes, self.bases, strict=True)
        ]
        text_dim = self.text.dim if self.text else 0
        *self.columns, self.text_columns, self.label_columns = _slices([*widths, text_dim, len(self.labels)])
        count = self.label_columns.stop
        self.moments = Moments(count, torch.float64 if count <= WIDE else torch.float32)
        spread = [np.full(sum(self.sizes), bound, dtype=np.float32) for bound in (np.inf, -np.inf)]
        self._add(self.fitted, spread, shown)
        chosen, probes = self._choose()
        self._add(self.held, spread, shown)
        features = self._features(self.validation.ids)
        lengths, nearest = self._second_pass(torch.from_numpy(features), shown)
        judged = self._columns(features, self.validation)
        own = [torch.from_numpy(features[:, place]) for place in self.places]
        sets = []
        for part, regularization in zip(self.parts, chosen, strict=True):
            sets.append(self._closed_form(part, regularization, judged))
            shown.update(1)
        similar = cka_map(self.moments, [*self.columns, *[self.text_columns] * bool(self.text)], lengths)
        mutual = self._mutual_neighbors(own, judged[:, self.text_columns])
        layers = [
            {
                "name": name,
                "features": size,
                **_dead(*(bound[place] for bound in spread)),
                "effective_rank": _effective_rank(self.moments, columns),
                "bytes_float16": 2 * size,
                "bytes_ternary": 2 * -(-size // 8),
                **({"cka_text": _number(similar[number, -1])} if self.text else {}),
                **({"mutual_neighbors": mutual[number]} if self.text else {}),
                **self._probe(number, judged, probes, nearest),
            }
            for number, (name, size, place, columns) in enumerate(
                zip(self.names, self.sizes, self.places, self.columns, strict=True)
            )
        ]
        count = len(self.names)
        single = [each["rsum"] for each in sets[:count]] if self.text else []
        return {
            "images": {"train": len(self.training.records), "val": len(self.validation.records)},
            "chance": _round(chance_of_rsum(self.validation.captions.counts))
            if self.validation.captions
            else None,
            "labels": len(self.labels),
            "label_metric": ("top-1" if self.single else "mAP") if self.labels else None,
            "layers": layers,
            "sets": sets,
            "cka": [[_number(value) for value in line[:count]] for line in similar[:count]],
            "agreement": {
                key: _spearman([layer[key] for layer in layers], single)
                for key in ("cka_text", "mutual_neighbors", "effective_rank")
                if self.text
            },
            "neighbors": self._pictures(own),
        }

    def _read(self, images: Sequence[str], shown: Progress | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the position of the first of some images and their rows, block by block."""
        start = 0
        for ids, block in self.rows.blocks(images, BLOCK):
            if not np.isfinite(block).all():
                fault = value_fault(self.rows.read_stored(ids), self.rows.dtype, ids, self.rows.layers)
                raise InputError(f"{self.rows.artifact.path}: {fault}; extract or import it again")
            yield start, mean_of_views(block.astype(np.float32), self.views)
            start += len(ids)
            if shown:
                shown.update(len(ids))

    def _features(self, ids: Sequence[str]) -> np.ndarray:
        return np.concatenate([block for _, block in self._read(ids)])

    def _bases(self, shown: Progress) -> list[tuple[Tensor, Tensor] | None]:
        """Return a mean and axes for each layer with more features than there are training images.

        The axes span the training rows, so nothing that is measured changes, but it takes less work.
        """
        count = len(self.training.records)
        wide = [number for number, size in enumerate(self.sizes) if size > count]
        if not wide:
            return [None] * len(self.sizes)
        found: list[tuple[Tensor, Tensor] | None] = [None] * len(self.sizes)
        rows = np.concatenate([block for _, block in self._read(self.training.ids, shown)])
        for number in wide:
            layer = unit(torch.from_numpy(rows[:, self.places[number]])).double()
            mean = layer.mean(dim=0)
            centered = layer - mean
            values, vectors = torch.linalg.eigh(centered @ centered.T)
            kept = values > max(CONSTANT, 1e-10 * float(values[-1]))
            axes = centered.T @ (vectors[:, kept] / values[kept].sqrt())
            found[number] = mean.float(), axes.float()
        return found

    def _columns(self, block: np.ndarray, images: Images) -> Tensor:
        """Return all columns of images, given their rows: scaled features, text and labels."""
        layers = []
        for place, base in zip(self.places, self.bases, strict=True):
            layer = unit(torch.from_numpy(block[:, place]))
            layers.append(layer if base is None else (layer - base[0]) @ base[1])
        if self.text and images.captions:
            features = self.text.of(images.captions.bags)
            sums = features.new_zeros((len(block), self.text.dim))
            owners = torch.from_numpy(images.captions.owners)
            layers.append(sums.index_add_(0, owners, features) / torch.bincount(owners)[:, None])
        return torch.cat([*layers, torch.from_numpy(images.labels.astype(np.float32))], dim=1)

    def _add(self, images: Images, spread: list[np.ndarray], shown: Progress) -> None:
        for start, block in self._read(images.ids, shown):
            chosen = images.select(np.arange(start, start + len(block)))
            self.moments.add(self._columns(block, chosen))
            np.minimum(spread[0], block.min(axis=0), out=spread[0])
            np.maximum(spread[1], block.max(axis=0), out=spread[1])

    def _features_of(self, part: Part) -> tuple[slice, int]:
        columns = self.columns[part.layers]
        return slice(columns[0].start, columns[-1].stop), sum(self.sizes[part.layers])

    def _choose(self) -> tuple[list[float], list[float]]:
        """Return the best regularization of each part for captions, and of each layer for labels.

        Parts from either end have that of all layers: trying each of them would take minutes.
        """
        grid = self.settings.regularization
        parts, probes = [grid[0]] * len(self.parts), [grid[0]] * len(self.names)
        if len(self.held.records) < 2 or len(grid) == 1:
            return parts, probes
        judged = self._columns(self._features(self.held.ids), self.held)
        tried = [number for number, part in enumerate(self.parts) if part.kind not in ("first", "last")]
        for number in tried if self.text else []:
            recalls = [self._aligned(self.parts[number], each, judged, self.held)[0] for each in grid]
            parts[number] = grid[int(np.argmax(recalls))]
        parts = [parts[number if number in tried else -1] for number in range(len(parts))]
        if self.labels and self.held.labels.any():
            for number in range(len(self.names)):
                scored = [self._linear(number, each, judged) for each in grid]
                scores = [self._judge(each, self.held.labels) for each in scored]
                probes[number] = grid[int(np.argmax(scores))]
        return parts, probes

    def _aligned(
        self, part: Part, regularization: float, judged: Tensor, images: Images
    ) -> tuple[float, Ranked | None]:
        """Return the sum of recalls of a closed form, and its ranks; None if the features do not vary."""
        columns, features = self._features_of(part)
        variance = self.moments.variance(columns) / features
        if variance <= CONSTANT or self.text is None or images.captions is None:
            return 0.0, None
        weights, predicted = regression(self.moments, columns, self.text_columns, regularization * variance)
        mean = self.moments.mean.float()
        solution = Solution(weights, mean[columns], mean[self.text_columns], self.text_covariance, predicted)
        axes = cca(solution, TEXT_REGULARIZATION, self.settings.dim)
        scales = axes.scales**POWER
        images_at = (judged[:, columns] - solution.image_mean) @ weights
        sentences = (self.text.of(images.captions.bags) - self.text_mean) @ (axes.of_text * scales)
        vectors = functional.normalize(images_at @ (axes.of_images * scales), dim=1)
        owners = images.captions.owners
        found = rank(vectors, functional.normalize(sentences, dim=1), torch.from_numpy(owners), cosine, 0)
        by_image, by_caption = found.image_ranks.numpy(), found.caption_ranks.numpy()
        folds = np.zeros(len(by_image), dtype=int)
        return retrieval_values(by_image, by_caption)["rsum"], Ranked(by_image, by_caption, owners, folds)

    def _closed_form(self, part: Part, regularization: float, judged: Tensor) -> Json:
        """Return the sum of recalls of a part on the validation images, with its interval."""
        _, features = self._features_of(part)
        about: Json = {"kind": part.kind, "name": part.name, "features": features}
        about |= {"regularization": regularization}
        rsum, ranks = self._aligned(part, regularization, judged, self.validation)
        if ranks is None:
            return about | {"rsum": None, "low": None, "high": None}
        low, high = intervals(ranks, RECALLS)[RSUM]
        return about | {"rsum": _round(rsum), "low": _round(low), "high": _round(high)}

    def _linear(self, number: int, regularization: float, judged: Tensor) -> np.ndarray:
        """Return the scores of ridge regression on a layer (images, labels)."""
        columns = self.columns[number]
        variance = self.moments.variance(columns) / self.sizes[number]
        if variance <= CONSTANT:
            return np.zeros((len(judged), len(self.labels)))
        weights, _ = regression(self.moments, columns, self.label_columns, regularization * variance)
        mean = self.moments.mean.float()
        scores = (judged[:, columns] - mean[columns]) @ weights + mean[self.label_columns]
        return scores.numpy()

    def _judge(self, scores: np.ndarray, labels: np.ndarray) -> float:
        if self.single:
            return 100 * float(np.mean(labels[np.arange(len(labels)), scores.argmax(axis=1)]))
        return mean_average_precision(scores, labels) if labels.any() else 0.0

    def _probe(
        self,
        number: int,
        judged: Tensor,
        probes: Sequence[float],
        nearest: Mapping[str, np.ndarray],
    ) -> Json:
        """Return how well labels are read off a layer, by a linear probe and by nearest neighbors."""
        labels = self.validation.labels
        if not self.labels or not labels.any():
            return {}
        scores = self._linear(number, probes[number], judged)
        low, high = self._interval(scores, labels)
        found = {"probe": _round(self._judge(scores, labels)), "probe_low": low, "probe_high": high}
        for distance, places in nearest.items():
            votes = self.training.labels[places[number]].mean(axis=1)
            found[distance] = _round(self._judge(votes, labels))
        return found | {"probe_regularization": probes[number]}

    def _interval(self, scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
        if not self.single:
            low, high = map_interval(scores, labels)
        else:
            right = labels[np.arange(len(labels)), scores.argmax(axis=1)]
            every = np.zeros(len(labels), dtype=int)
            found = [times @ right / len(right) for times in draws(every, 1000, 0)]
            low, high = percentiles(100 * np.concatenate(found))
        return _round(low), _round(high)

    def _second_pass(self, judged: Tensor, shown: Progress) -> tuple[Tensor, dict[str, np.ndarray]]:
        """Return squared lengths of centered rows (images, layers and text), and nearest training images.

        Neighbors are those of each validation image in each layer (layers, images, neighbors), by the cosine
        and by the Euclidean distance of the rows as they are.
        """
        columns = [*self.columns, *[self.text_columns] * bool(self.text)]
        mean = self.moments.mean.float()
        lengths = torch.zeros((len(self.training.records), len(columns)), dtype=torch.float64)
        kept = {distance: [Nearest(self.settings.neighbors) for _ in self.names] for distance in DISTANCES}
        for start, block in self._read(self.training.ids, shown):
            chosen = self.training.select(np.arange(start, start + len(block)))
            centered = self._columns(block, chosen) - mean
            for number, each in enumerate(columns):
                own = centered[:, each].square().sum(dim=1, dtype=torch.float64)
                lengths[start : start + len(block), number] = own
            for number, place in enumerate(self.places if self.labels else []):
                layer = torch.from_numpy(block[:, place])
                for distance, near in DISTANCES.items():
                    kept[distance][number].add(near(judged[:, place], layer), start)
        if not self.labels:
            return lengths, {}
        return lengths, {
            distance: np.stack([each.places.numpy() for each in own]) for distance, own in kept.items()
        }

    def _mutual_neighbors(self, layers: Sequence[Tensor], text: Tensor) -> list[float]:
        """Return the mean share of neighbors that each layer has in common with the captions."""
        if not self.text:
            return []
        count = min(self.settings.neighbors, len(text) - 1)
        by_text = neighbors(text, count)
        found = []
        for rows in layers:
            both = (neighbors(rows, count)[:, :, None] == by_text[:, None, :]).sum(dim=(1, 2))
            found.append(_round(float(both.double().mean()) / count, 4))
        return found

    def _pictures(self, rows: Sequence[Tensor]) -> Json:
        """Return the nearest validation images of a few, by an early, a middle and a late layer."""
        random = np.random.default_rng(self.settings.seed)
        count = len(self.names)
        layers = sorted({round(place * (count - 1) / (SHOWN - 1)) for place in range(SHOWN)})
        ids = self.validation.ids
        queries = np.sort(random.permutation(len(ids))[:PICTURES])
        near = {layer: neighbors(rows[layer], min(MATCHES, len(ids) - 1)) for layer in layers}
        return {
            ids[query]: {self.names[layer]: [ids[each] for each in near[layer][query]] for layer in layers}
            for query in queries
        }


def _slices(sizes: Sequence[int]) -> list[slice]:
    bounds = [0, *np.cumsum(sizes).tolist()]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _dead(low: np.ndarray, high: np.ndarray) -> Json:
    """Count features that are 0 for all training images, and others that are the same for all."""
    same = low == high
    return {"dead": int((same & (low == 0)).sum()), "constant": int((same & (low != 0)).sum())}


def _effective_rank(moments: Moments, columns: slice) -> float | None:
    """Return the participation ratio of the variances: how many equal ones would be as concentrated."""
    squares = square(moments, columns, columns)
    return _round(moments.variance(columns) ** 2 / squares) if squares > CONSTANT**2 else None


def _spearman(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Return the rank correlation of two lists, without places where one has no value."""
    both = [pair for pair in zip(first, second, strict=True) if None not in pair]
    ranks = [_ranks(np.array([pair[side] for pair in both], dtype=float)) for side in (0, 1)]
    if len(both) < 3 or any(len(set(each)) < 2 for each in ranks):
        return None
    return _round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 3)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value from 0, the mean of equal ones."""
    below, upto = (values[:, None] > values).sum(axis=1), (values[:, None] >= values).sum(axis=1)
    mean: np.ndarray = (below + upto - 1) / 2
    return mean


def _round(value: float, digits: int = 2) -> float:
    return round(value, digits)


def _number(value: Tensor) -> float | None:
    return None if value.isnan() else _round(float(value), 4)
