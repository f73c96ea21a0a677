"""The record of an extraction in artifacts: its extractor is built again, or found for imported features.

An artifact names in its lineage what computed the activations it was made from, so a new photo can be
embedded like the images of its store. For imported features that is unknown. If the user names an extractor,
photos whose rows are known are computed again; if the rows agree, the store records the extractor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fne.core.device import has_gpu, is_gpu, prepare_device
from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.extraction.extractor import Extractor, build_extractor
from fne.extraction.run import check_finite
from fne.extraction.settings import AUTO, ExtractorSettings, InputFormat
from fne.extraction.weights import Weights, load_weights
from fne.store.artifact import Artifact, merge
from fne.store.images import UndecodableError, decode_bytes
from fne.store.layout import Layer
from fne.store.rows import Rows, rewrite_origin

PHOTOS = 16
# The allowed relative Euclidean distance per layer. Rounding to float16 leaves less than 0.001; another
# resize, other crops or other weights differ by far more than 0.01.
TOLERANCE = 0.005


@dataclass(frozen=True)
class Agreement:
    """How far the rows of some photos are from those of the extractor, at most."""

    photos: int
    difference: float


def recorded_extraction(origin: Artifact) -> dict[str, Any]:
    """Return the settings of the extraction that an artifact was made from; refuse imported features."""
    settings: dict[str, Any] = origin.lineage.get("activations", {}).get("settings", {})
    if "weights" not in origin.lineage or not ExtractorSettings.model_fields.keys() <= settings.keys():
        raise InputError(
            f"{origin.path} was made from imported features, and the network that computed them is unknown; "
            "search with an image of the catalog"
        )
    return settings


def open_extractor(origin: Artifact, weights: Path, runtime: Runtime) -> Extractor:
    """Build the extractor of the activations that `origin` was made from; refuse other weights."""
    settings = recorded_extraction(origin)
    loaded = load_weights(weights, settings["backbone"], recorded_input(origin))
    merge(origin, loaded.artifact)
    return build_recorded(origin, loaded, runtime)


def recorded_input(origin: Artifact) -> InputFormat:
    """Return how images were fed to the network of the extraction that an artifact was made from."""
    return InputFormat.model_validate(recorded_extraction(origin)["input"])


def build_recorded(
    origin: Artifact, weights: Weights, runtime: Runtime, layers: Sequence[str] | None = None
) -> Extractor:
    """Build the extractor of the activations that `origin` was made from, with these `layers` if given.

    It is refused if this version of the extractor computes other values.
    """
    settings = recorded_extraction(origin)
    chosen = ExtractorSettings(**{key: settings[key] for key in ExtractorSettings.model_fields})
    prepare_device(runtime)
    device, algorithm = torch.device(settings["device"]), settings["algorithm"]
    if layers is not None:
        chosen, algorithm = chosen.model_copy(update={"layers": list(layers)}), AUTO
    if is_gpu(device) and not has_gpu():
        say("the catalog was computed on a GPU; on this CPU, the last digits may differ", err=True)
        device, algorithm = torch.device("cpu"), AUTO
    extractor = build_extractor(chosen, weights, algorithm, device)
    for key, name in (("decoder", "the decoder"), ("extractor", "the extractor"), ("timm", "timm")):
        if extractor.kind.get(key) != settings.get(key):
            raise InputError(
                f"{origin.path} was made with version {settings.get(key)} of {name}, but this is version "
                f"{extractor.kind.get(key)}; run `dvc repro`"
            )
    return extractor


def record_network(store: Path, photos: Path, extractor: Extractor, weights: Weights) -> Agreement:
    """Compare rows of imported features with those of an extractor, and record it in the store.

    `photos` is a folder with files of some of its images, named by their ids.
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
        distance = float(np.linalg.norm(found[columns].astype(np.float64) - expected[columns]))
        differences[layer.name] = round(distance / length, 12) if length else float(distance > 0)
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
