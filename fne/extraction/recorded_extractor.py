"""The extractor that computed the activations an artifact was made from, built again from its lineage."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fne.core.device import has_gpu, is_gpu, prepare_device
from fne.core.errors import InputError
from fne.core.params import Runtime
from fne.core.terminal import say
from fne.extraction.extractor import AUTO, Extractor, ExtractorSettings, build_extractor
from fne.extraction.preprocess import InputFormat
from fne.extraction.weights import Weights, load_weights
from fne.store.artifact import Artifact, merge


def recorded_extraction(origin: Artifact) -> dict[str, Any]:
    """Return the settings of the extraction that an artifact was made from.

    Raises:
        InputError: if its activations were imported, so that no further image can be extracted.
    """
    settings: dict[str, Any] = origin.lineage.get("activations", {}).get("settings", {})
    if "weights" not in origin.lineage or not ExtractorSettings.model_fields.keys() <= settings.keys():
        raise InputError(
            f"{origin.path} was made from imported features, and the network that computed them is unknown; "
            "search with an image of the catalog"
        )
    return settings


def open_extractor(origin: Artifact, weights: Path, runtime: Runtime) -> Extractor:
    """Build the extractor that computed the activations that `origin` was made from.

    Raises:
        InputError: if the weights differ, or if this version of the extractor computes other values.
    """
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
    """Build the extractor of the activations that `origin` was made from, with given weights.

    Args:
        origin: the artifact.
        weights: the weights of the network.
        runtime: the runtime settings.
        layers: the layers to extract, if they are not those of the record.

    Raises:
        InputError: if this version of the extractor computes other values.
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
