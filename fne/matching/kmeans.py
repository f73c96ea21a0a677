"""K-means classes of training images: the control for the instance loss, which has one class per image."""

import numpy as np
import torch

from fne.core.errors import InputError


def k_means(rows: np.ndarray, classes: int, seed: int, rounds: int = 100) -> np.ndarray:
    """Group rows (rows, features); return the class of each row (rows). All classes are used.

    Lloyd's algorithm, of at most `rounds` rounds, from centers that k-means++ draws. The result depends on
    the rows and the seed only. A class that becomes empty takes the row that is farthest from its center.
    """
    if not 1 <= classes <= len(rows):
        raise InputError(
            f"train.instance.classes is {classes}, but there are {len(rows)} training images; "
            f"use 1 to {len(rows)}"
        )
    points = np.asarray(rows, dtype=np.float64)
    squares = np.einsum("ij,ij->i", points, points)
    generator = np.random.default_rng(seed)
    centers = _first_centers(points, squares, classes, generator)
    labels = np.full(len(points), -1)
    for _ in range(rounds):
        before = labels
        labels, distances = _nearest(points, squares, centers)
        _fill_empty(labels, distances, classes)
        if np.array_equal(labels, before):
            break
        order = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[order], np.arange(classes))
        # No class is empty, so every sum has rows of its own.
        centers = np.add.reduceat(points[order], starts, axis=0) / np.bincount(labels)[:, None]
    return labels


def _first_centers(
    points: np.ndarray, squares: np.ndarray, classes: int, generator: np.random.Generator
) -> np.ndarray:
    chosen = [int(generator.integers(len(points)))]
    closest = np.full(len(points), np.inf)
    for _ in range(classes - 1):
        _, distances = _nearest(points, squares, points[chosen[-1:]])
        closest = np.minimum(closest, distances)
        closest[chosen] = 0  # not a rounding error above it
        reached = np.cumsum(closest)
        if reached[-1] > 0:
            place = int(np.searchsorted(reached, generator.random() * reached[-1], side="right"))
        else:  # the other rows equal the centers that are there
            place = next(row for row in range(len(points)) if row not in set(chosen))
        chosen.append(min(place, len(points) - 1))
    return points[chosen]


def _nearest(
    points: np.ndarray, squares: np.ndarray, centers: np.ndarray, block: int = 1024
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest center of each point and the squared distance to it; of equal ones, the first."""
    labels = np.empty(len(points), dtype=np.int64)
    distances = np.empty(len(points))
    lengths = np.einsum("ij,ij->i", centers, centers)
    for start in range(0, len(points), block):
        part = slice(start, start + block)
        # Not with NumPy: the threads of its BLAS are not those of the training.
        products = torch.from_numpy(points[part]) @ torch.from_numpy(centers).T
        found = lengths - 2 * products.numpy()  # (block, classes), up to the points' own squares
        labels[part] = found.argmin(axis=1)
        distances[part] = found[np.arange(len(found)), labels[part]]
    return labels, np.maximum(distances + squares, 0)


def _fill_empty(labels: np.ndarray, distances: np.ndarray, classes: int) -> None:
    counts = np.bincount(labels, minlength=classes)
    for empty in np.flatnonzero(counts == 0):
        # Rows of classes that have another row; the last center of a class never leaves it.
        movable = np.where(counts[labels] > 1, distances, -1.0)
        farthest = int(movable.argmax())
        counts[labels[farthest]] -= 1
        labels[farthest], distances[farthest], counts[empty] = empty, 0.0, 1
