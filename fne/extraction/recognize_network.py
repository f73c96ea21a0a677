"""Recognizing the network that computed imported features: photos whose rows are known are computed again.

If the rows agree, the store records how `extract` computes them. From then on a new photo can be embedded
like the images of the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.extraction.extractor import Extractor
from fne.extraction.run import check_finite
from fne.extraction.weights import Weights
from fne.store.artifact import merge
from fne.store.images import UndecodableError, decode_bytes
from fne.store.layout import Layer
from fne.store.rows import Rows, rewrite_origin

PHOTOS = 16
# Of a layer, as a relative Euclidean distance. Rounding to float16 leaves less than 0.001; another resize,
# other crops or other weights differ by far more than 0.01.
TOLERANCE = 0.005


@dataclass(frozen=True)
class Agreement:
    """How far the rows of some photos are from those of the extractor, at most."""

    photos: int
    difference: float


def record_network(store: Path, photos: Path, extractor: Extractor, weights: Weights) -> Agreement:
    """Compare rows of imported features with those of an extractor, and record it in the store.

    Args:
        store: the folder of the imported features.
        photos: a folder with files of some of its images, named by their ids.
        extractor: what has computed them, as the user says.
        weights: the weights of the extractor.

    Raises:
        InputError: if there is no photo of the store, or if layers or rows differ.
    """
    rows = Rows.open(store, "activations")
    _require_layers(rows, extractor.layers)
    chosen = choose_photos(rows.ids, photos)
    if not chosen:
        raise InputError(
            f"{photos}: has no photo of the {len(rows.ids)} images of {store}, whose first id is "
            f"{rows.ids[0]!r}; name the folder that their ids start from"
        )
    worst = 0.0
    for image_id in chosen:
        found = rows.read([image_id])[0]
        layer, difference = farthest_layer(found, _compute(photos / image_id, extractor), extractor.layers)
        worst = max(worst, difference)
        if difference > TOLERANCE:
            raise InputError(
                f"{photos / image_id}: `extract` in params.yaml computes another row than that of {store}: "
                f"{layer} differs by {difference:.2g} of its length, more than {TOLERANCE:g}; correct "
                "extract.weights, resize, crops or activations, or leave out --photos"
            )
    imported = rows.artifact.settings
    checked = {"photos": len(chosen), "difference": float(f"{worst:.2g}")}
    rewrite_origin(
        store, extractor.kind | {"imported": imported, "checked": checked}, merge(weights.artifact)
    )
    return Agreement(len(chosen), worst)


def choose_photos(ids: Sequence[str], folder: Path) -> list[str]:
    """Return at most `PHOTOS` ids whose files are in a folder, spread over all of them."""
    below = [each for each in sorted(ids) if not Path(each).is_absolute() and ".." not in Path(each).parts]
    there = [each for each in below if (folder / each).is_file()]
    step = max(1, len(there) // PHOTOS)
    return there[::step][:PHOTOS]


def farthest_layer(found: np.ndarray, expected: np.ndarray, layers: Sequence[Layer]) -> tuple[str, float]:
    """Return the layer that differs most between two rows, and its distance in units of its length.

    Example:
        >>> farthest_layer(np.array([1, 0, 3.3]), np.array([1, 0, 3]), [Layer("a", 2), Layer("b", 1)])
        ('b', 0.1)
    """
    differences, start = {}, 0
    for layer in layers:
        columns = slice(start, start + layer.features)
        start += layer.features
        length = float(np.linalg.norm(expected[columns].astype(np.float64)))
        apart = float(np.linalg.norm(found[columns].astype(np.float64) - expected[columns]))
        differences[layer.name] = round(apart / length, 12) if length else float(apart > 0)
    name = max(differences, key=differences.__getitem__)
    return name, differences[name]


def _compute(photo: Path, extractor: Extractor) -> np.ndarray:
    try:
        picture = decode_bytes(read_bytes(photo))
    except UndecodableError as error:
        raise InputError(f"{photo}: cannot be decoded ({error}); remove it from the folder") from None
    row: np.ndarray = extractor.compute([extractor.resize(picture)])[0]
    check_finite(row, str(photo), extractor.layers)
    return row


def _require_layers(rows: Rows, computed: Sequence[Layer]) -> None:
    if list(rows.layers) == list(computed):
        return
    theirs, ours = (f"{len(each)} layers, the last is {each[-1].name}" for each in (rows.layers, computed))
    raise InputError(
        f"{rows.artifact.path}: has other layers ({theirs}) than `extract` in params.yaml computes ({ours}); "
        "correct extract.backbone, weights or layers, or leave out --photos"
    )
