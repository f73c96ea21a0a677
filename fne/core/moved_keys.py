"""Keys of `params.yaml` that earlier versions had elsewhere, or not at all.

One table serves the message about an old parameter file and the reading of experiments
that an earlier version recorded in `dvc.lock`.
"""

from collections.abc import Mapping
from typing import Any

# The kinds of embedding whose rows were scaled to length one before `embed.rows` existed.
UNIT_KINDS = ("layer", "raw")
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
# Where keys of earlier versions went, by section and key.
MOVED: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "hardest": ("losses.max_hinge.hardest", "losses.top_k_hinge.hardest"),
        "top_k": ("losses.top_k_hinge.k",),
    }
}
# What keys meant before they existed, nested ones as `-S` names them: experiments and models of
# earlier versions are read with these.
BEFORE: dict[str, dict[str, Any]] = {
    "catalog": {
        "captions_per_image": 0,
        "columns.caption": "auto",
        "columns.hints": "auto",
        "columns.image": "auto",
        "columns.split": "auto",
        "columns.tags": "auto",
        "test_from_train": 0.0,
        "val_images": 0,
    },
    "extract": {"layers": "all", "views": "mean"},
    "finetune": {"epochs": 0},
    "tokenize": {
        "cut": "nltk",
        "longest": 0,
        "vectors": "weights/no_words.yaml",
        "without_vector": "random",
    },
    "train": {
        "caption_anchors": 1.0,
        "classifier_rate": 1.0,
        "contrasts": "other_images",
        "gain_rate": 1.0,
        "image_anchors": 1.0,
        "image_class_weight": 0.0,
        "keep": "best",
        "last_batch": "keep",
        "method": "steps",
        "rank_weight": 1.0,
        "rates": "equal",
        "rectified": False,
        "reduce": "sum",
        "start": "random",
        "text_class_weight": 0.0,
        "text_encoders.gru.initial": "torch",
        "words": "learned",
        "words_rate": 1.0,
    },
}


def moved_keys(section: str, content: Mapping[str, Any]) -> list[str]:
    """Return where keys of an earlier version went, one sentence per key."""
    return [
        f"'{key}' is now {' and '.join(repr(f'{section}.{new}') for new in places)}"
        for key, places in MOVED.get(section, {}).items()
        if key in content
    ]


def upgraded(section: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of an earlier version, as `dvc.lock` recorded it, with the keys of now."""
    new = dict(content)
    known = flattened(content)
    for place, value in BEFORE.get(section, {}).items():
        if place not in known:
            put(new, place, value)
    if section == "embed":
        new.setdefault("rows", "unit" if content.get("kind") in UNIT_KINDS else "none")
    if section == "extract":
        # Before `extract.input`, every image was fed as torchvision does; YAML files now say that.
        named = str(content.get("weights", "")).endswith((".yaml", ".yml"))
        new.setdefault("input", "auto" if named else "torchvision")
    for key, places in MOVED.get(section, {}).items():
        if key in new:
            value = new.pop(key)
            for place in places:
                put(new, place, value)
    return new


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


def variant_settings(section: str, family: str, name: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded settings of a variant, with what keys meant that did not exist yet.

    Example:
        >>> variant_settings("train", "text_encoders", "gru", {})
        {'initial': 'torch'}
    """
    prefix = f"{family}.{name}."
    before = {
        place.removeprefix(prefix): value
        for place, value in BEFORE.get(section, {}).items()
        if place.startswith(prefix)
    }
    return before | dict(recorded)


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
