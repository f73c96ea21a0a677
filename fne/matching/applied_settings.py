"""Which keys of the section `train` take effect. Importing this module does not import torch."""

from collections.abc import Mapping
from typing import Any

from fne.core import effective_settings

# The parts of a closed-form model. With `train.start: auto`, training starts from CCA where a model has them.
CLOSED_FORM = {
    "image_head": "linear_bias",
    "text_encoder": "tfidf",
    "similarity": "cosine",
    "absolute": False,
    "rectified": False,
    "words": "learned",
}
# The terms of an objective that have a block, and the keys with their weights: with a weight of 0 in all
# phases, a term is not computed.
TERM_WEIGHTS = {"instance": ("image_class_weight", "text_class_weight")}


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


def applies(key: str, section: Mapping[str, Any]) -> bool:
    """Return whether a flattened key of `train`, or of another section, applies.

    The blocks of `terms` and `methods` are named by no key of their own: those of `terms` apply with a weight
    above 0, and one of `methods` also if training starts from its closed form.
    """
    family, _, rest = key.partition(".")
    variant = rest.partition(".")[0]
    if family == "terms" and rest:
        weights = (section.get(name, 0) for name in TERM_WEIGHTS.get(variant, ()))
        return any(any(each) if isinstance(each, list) else each for each in weights)
    if family == "methods" and variant == start_of(section):
        return True
    return effective_settings.applies(key, section)
