"""Which keys of `params.yaml` take effect, and their names for `-S`.

A key in the block of a variant that is not chosen does not apply.
"""

from collections.abc import Mapping
from typing import Any

# The blocks of each family, and the key that names the chosen variant, or one per phase.
FAMILIES = {
    "cells": "cell",
    "concept_sources": "concepts",
    "hint_readers": "hints",
    "image_heads": "image_head",
    "losses": "loss",
    "methods": "method",
    "optimizers": "optimizer",
    "recognizers": "recognizer",
    "text_encoders": "text_encoder",
}
# The terms of an objective that have a block, and the keys with their weights: with a weight of 0 in all
# phases, a term is not computed.
TERMS = {"instance": ("image_class_weight", "text_class_weight")}
# The parts of a closed-form model. With `train.start: auto`, training starts from CCA where a model has them.
CLOSED_FORM = {
    "image_head": "linear_bias",
    "text_encoder": "tfidf",
    "similarity": "cosine",
    "absolute": False,
    "rectified": False,
    "words": "learned",
}


def start_of(train: Mapping[str, Any]) -> str:
    """Return what training by steps starts from: `random`, or the method whose closed form it is.

    Example:
        >>> start_of({"start": "auto", "text_encoder": "gru"}), start_of({"start": "auto"} | CLOSED_FORM)
        ('random', 'cca')
    """
    start = str(train.get("start", "random"))
    if start != "auto":
        return start
    return "cca" if all(train.get(key) == value for key, value in CLOSED_FORM.items()) else "random"


def resolved(section: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded section with the values that take effect, as an artifact records them.

    `train.start: auto` becomes what training starts from, and the closed form that training starts from has
    the dimension of the joint space.

    Example:
        >>> section = {"start": "auto", "embed_dim": 256, "methods": {"cca": {"dim": 512}}} | CLOSED_FORM
        >>> flattened(resolved("train", section))["methods.cca.dim"]
        256
    """
    new = dict(content)
    if section != "train" or content.get("method", "steps") != "steps":
        return new
    new["start"] = start_of(content)
    if new["start"] != "random" and "embed_dim" in content:
        put(new, f"methods.{new['start']}.dim", content["embed_dim"])
    return new


def put(content: dict[str, Any], place: str, value: Any) -> None:
    """Set a nested key, given as `losses.max_hinge.hardest`; blocks on the way are copied or made."""
    *path, last = place.split(".")
    for part in path:
        content[part] = dict(content.get(part) or {})
        content = content[part]
    content[last] = value


def flattened(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested keys as one level, named as `-S` names them.

    Example:
        >>> flattened({"margin": 0.2, "losses": {"max_hinge": {"hardest": "query"}}})
        {'margin': 0.2, 'losses.max_hinge.hardest': 'query'}
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        nested = isinstance(value, Mapping)
        flat |= flattened(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def applies(key: str, section: Mapping[str, Any]) -> bool:
    """Return whether a flattened key applies: one in the block of a variant that is not chosen does not.

    Nor does a key of a section that 0 epochs switch off.

    Example:
        >>> applies("losses.max_hinge.hardest", {"loss": ["sum_hinge"]})
        False
    """
    if section.get("epochs") in (0, [0]):
        return key == "epochs"
    family, _, rest = key.partition(".")
    if family == "terms" and rest:
        weights = (section.get(name, 0) for name in TERMS.get(rest.partition(".")[0], ()))
        return any(any(each) if isinstance(each, list) else each for each in weights)
    if family not in FAMILIES or not rest:
        return True
    chosen = [section.get(FAMILIES[family], [])]
    if family == "methods":
        chosen.append(start_of(section))
    variant = rest.partition(".")[0]
    return any(variant in (each if isinstance(each, list) else [each]) for each in chosen)
