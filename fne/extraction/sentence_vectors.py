"""Sentences as vectors of a joint space that another program made, by the text network that made them.

Three kinds of folders say how the states of tokens become one vector: those of sentence-transformers
(`modules.json`), CLIP and SigLIP in the form of transformers, and those of open_clip
(`open_clip_config.json`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from fne.core.errors import InputError
from fne.extraction.text_networks import (
    FAULTS,
    OPEN_CLIP,
    TextNetwork,
    find_network,
    first_line,
    network_modules,
    open_text_network,
    pooled,
)
from fne.store.artifact import Artifact, merge
from fne.store.rows import Rows, rewrite_origin

# The setting of an import with the folder of its text network, and how many captions are compared.
SETTING = "text_network"
CAPTIONS = 16
# The allowed relative Euclidean distance; rounding to float16 leaves less than 0.001.
TOLERANCE = 0.005
POOLING = {"cls": "first", "lasttoken": "last", "mean": "mean"}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"Identity": lambda values: values, "Tanh": torch.tanh}

# Maps sentences to vectors (sentences, dim).
Encode = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class SentenceVectors:
    """A text network with what makes vectors of a joint space."""

    artifact: Artifact
    encode: Encode


def open_sentence_vectors(place: Path) -> SentenceVectors:
    """Load what a folder, or a YAML file that names it, says about vectors of sentences."""
    artifact, folder = find_network(place)
    if (folder / OPEN_CLIP).is_file():
        return SentenceVectors(artifact, _open_clip(folder))
    network = open_text_network(place)
    modules = network_modules(folder)
    if modules:
        return SentenceVectors(artifact, _of_modules(network, modules))
    if hasattr(network.whole, "get_text_features"):
        return SentenceVectors(artifact, _each(network, lambda numbers: _text_features(network, numbers)))
    raise InputError(
        f"{folder}: does not say how its tokens become a vector; name a folder of sentence-transformers, "
        "CLIP, SigLIP or open_clip"
    )


def record_text_network(
    store: Path, place: Path, texts: Mapping[str, str], cosine: bool
) -> tuple[int, float]:
    """Compare imported vectors of captions with those of a network, and record it in their store.

    Returns:
        how many captions were compared, and the largest difference.
    """
    rows = Rows.open(store, "caption_features")
    known = sorted(texts.keys() & set(rows.ids))
    chosen = known[:: max(1, len(known) // CAPTIONS)][:CAPTIONS]
    if not chosen:
        raise InputError(f"{store}: has no caption of the catalog, so nothing can be compared with {place}")
    vectors = open_sentence_vectors(place)
    found, expected = rows.read(chosen, np.float32), vectors.encode([texts[each] for each in chosen])
    if found.shape != expected.shape:
        raise InputError(
            f"{place}: makes vectors of {expected.shape[1]} values, but {store} has {found.shape[1]}"
        )
    if cosine:
        found, expected = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (found, expected))
    differences = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    worst = int(differences.argmax())
    if not differences[worst] <= TOLERANCE:
        raise InputError(
            f"{place}: makes another vector of {texts[chosen[worst]]!r} than {store} has (it "
            f"differs by {differences[worst]:.2g} of its length, more than {TOLERANCE:g}); name the right one"
        )
    checked = {"captions": len(chosen), "difference": float(f"{differences[worst]:.2g}")}
    settings = rows.artifact.settings | {SETTING: str(place), "checked": checked}
    rewrite_origin(store, settings, merge(vectors.artifact))
    return len(chosen), float(differences[worst])


def _each(network: TextNetwork, vector: Callable[[list[int]], Tensor]) -> Encode:
    """Return what maps sentences one by one: queries are few, and need no padding."""

    @torch.inference_mode()
    def encode(sentences: Sequence[str]) -> np.ndarray:
        numbers, _ = network.number(sentences)
        encoded: np.ndarray = torch.cat([vector(each) for each in numbers]).float().cpu().numpy()
        return encoded

    return encode


def _of_modules(network: TextNetwork, modules: Sequence[tuple[str, Path]]) -> Encode:
    first = modules[0][1] / "sentence_bert_config.json"
    longest = _configuration(first).get("max_seq_length") if first.is_file() else None
    if longest:
        network = replace(network, positions=min(network.positions, int(longest)))
    steps = [_module(kind, folder) for kind, folder in modules[1:]]

    def vector(numbers: list[int]) -> Tensor:
        values = network.hidden_states([numbers])[-1]  # (1, tokens, width)
        for step in steps:
            values = step(values)
        return values

    return _each(network, vector)


def _module(kind: str, folder: Path) -> Callable[[Tensor], Tensor]:
    """Return what a module of sentence-transformers computes; others than these three are refused."""
    if kind == "Normalize":
        return lambda values: functional.normalize(values, dim=1)
    configuration = _configuration(folder / "config.json")
    if kind == "Pooling":
        mode = configuration.get("pooling_mode")
        named = (
            [mode]
            if isinstance(mode, str)
            else [
                key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
                for key, value in configuration.items()
                if key.startswith("pooling_mode_") and value is True
            ]
        )
        if len(named) == 1 and named[0] in POOLING:
            return lambda values: pooled(values, POOLING[named[0]])
        raise InputError(f"{folder}: pools by {', '.join(named) or 'nothing'}, expected {', '.join(POOLING)}")
    activation = str(configuration.get("activation_function", "Identity")).rpartition(".")[2]
    if kind == "Dense" and activation in ACTIVATIONS and (folder / "model.safetensors").is_file():
        weights = load_file(folder / "model.safetensors")
        return lambda values: ACTIVATIONS[activation](
            functional.linear(values, weights["linear.weight"].float(), weights.get("linear.bias"))
        )
    raise InputError(f"{folder}: the module {kind} is not supported, or is not in safetensors")


def _text_features(network: TextNetwork, numbers: list[int]) -> Tensor:
    found = network.whole.get_text_features(input_ids=torch.tensor([numbers]))  # type: ignore[operator]
    features: Tensor = getattr(found, "pooler_output", found)
    return features


def _open_clip(folder: Path) -> Encode:
    try:
        import open_clip  # optional
    except ImportError:
        raise InputError(
            f"{folder}: networks of open_clip need open_clip, which is not installed; install it with pip "
            "install -e '.[clip]'"
        ) from None
    try:
        model, _ = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
        tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    except FAULTS as error:
        raise InputError(
            f"{folder}: cannot be read as a network of open_clip ({first_line(error)})"
        ) from None

    @torch.inference_mode()
    def encode(sentences: Sequence[str]) -> np.ndarray:
        encoded: np.ndarray = model.eval().encode_text(tokenizer(list(sentences))).float().numpy()
        return encoded

    return encode


def _configuration(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return dict(found)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file}: cannot be read ({first_line(error)}); download it again") from None
