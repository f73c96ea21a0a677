"""The similarities of imported vectors in NumPy, for a stage that does not import torch.

They are those that `fne.matching.similarities.find_similarity` returns for imported vectors.

Every similarity is called as `similarity(images, captions)` with vectors (images, dim) and (captions, dim) in
float32, and returns scores (images, captions); higher is better.
"""

import numpy as np

MIN_NORM = 1e-12  # the lower bound of torch's `normalize`


def scale_to_unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (rows, dim) to length one; a vector of zeros stays as it is."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: np.ndarray = vectors / np.maximum(norms, MIN_NORM)
    return unit


def cosine(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return inner products, which are cosines because all vectors have length one."""
    products: np.ndarray = images @ captions.T
    return products


def euclidean(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return minus the Euclidean distance.

    It is computed in double precision: long vectors would lose the digits of small distances in float32.
    """
    images, captions = images.astype(np.float64), captions.astype(np.float64)
    of_images, of_captions = (np.square(each).sum(axis=1) for each in (images, captions))
    squared = of_images[:, None] - 2 * (images @ captions.T) + of_captions[None, :]
    distances: np.ndarray = np.sqrt(np.maximum(squared, 0)).astype(np.float32)
    return 0 - distances


def order(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return minus the squared length of a caption's excess over its image."""
    from fne.matching.order_kernels import score  # numba: slow to import

    scores = np.empty((len(images), len(captions)), images.dtype)
    score(np.ascontiguousarray(images), np.ascontiguousarray(captions), scores, 0, len(captions))
    return scores


def order_root(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return minus the length of a caption's excess over its image."""
    lengths: np.ndarray = np.sqrt(-order(images, captions))
    return 0 - lengths


NUMPY_SIMILARITIES = {"cosine": cosine, "euclidean": euclidean, "order": order, "order_root": order_root}
