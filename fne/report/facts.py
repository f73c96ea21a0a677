"""What was run, in words: from the settings and digests that every artifact carries."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fne.report.history import History
from fne.store.catalog import SPLITS, Captioned
from fne.store.lineage import Lineage

# In the order of their making; ancestors not named here follow by name.
ORDER = ["images", "captions", "weights", "activations", "train_images", "statistics", "embeddings"]
ORDER += ["vocabulary", "tokens", "model", "image_vectors", "caption_vectors", "ranks"]
# The settings that may differ between the phases of training.
PHASE_KEYS = ["loss", "margin", "learning_rate"]
# Results rather than choices; the page shows them elsewhere.
FINDINGS = {"shares"}


@dataclass(frozen=True)
class Ancestor:
    """One artifact that this run was made from."""

    name: str
    digest: str
    settings: dict[str, str]


def settings_of(lineage: Lineage, name: str) -> dict[str, Any]:
    """Return the settings that made an artifact; none if the run has no such artifact."""
    settings: dict[str, Any] = lineage.get(name, {}).get("settings", {})
    return settings


def facts(lineage: Lineage) -> dict[str, str]:
    """Return the choices that matter most."""
    names = ("activations", "weights", "embeddings", "model")
    activations, weights, embedding, model = (in_words(settings_of(lineage, name)) for name in names)
    found = {
        "Backbone": activations.get("backbone"),
        "Weights": weights.get("name") or weights.get("file") or weights.get("kind"),
        "Embedding": embedding.get("layer" if embedding.get("kind") == "layer" else "kind"),
        "Text encoder": model.get("text_encoder"),
        "Similarity": model.get("similarity"),
        "Loss": model.get("loss"),
        "Seed": model.get("seed"),
    }
    return {title: words for title, words in found.items() if words}


def counts(captioned: Iterable[Captioned], lineage: Lineage) -> dict[str, str]:
    """Return how much there is of what."""
    records = list(captioned)
    images = Counter(record.split for record in records)
    splits = ", ".join(f"{images[split]:,} {split}" for split in SPLITS if images[split])
    words = settings_of(lineage, "tokens").get("words")
    return {
        "Images": splits,
        "Sentences": f"{sum(len(record.captions) for record in records):,}",
    } | ({"Known words": f"{words:,}"} if words else {})


def unit_of_history(lineage: Lineage) -> str:
    """Return what one step of the training's history is."""
    return "validation" if settings_of(lineage, "model").get("validate_every") else "epoch"


def phases(lineage: Lineage, history: History) -> list[dict[str, str]]:
    """Return what each phase of training was, by name; nothing if there was only one."""
    model = settings_of(lineage, "model")
    lists = {key: model[key] for key in PHASE_KEYS if isinstance(model.get(key), list)}
    number = max((len(values) for values in lists.values()), default=0)
    if number < 2:
        return []
    spans = history.phase_spans
    return [
        {key: _word(values[phase % len(values)]) for key, values in lists.items()}
        | {f"{history.unit}s": "{}–{}".format(*spans[phase + 1]) if phase + 1 in spans else "none"}
        for phase in range(number)
    ]


def ancestors(lineage: Lineage) -> list[Ancestor]:
    """Return the artifacts of a lineage in the order of their making, settings in words."""
    names = [name for name in ORDER if name in lineage] + sorted(lineage.keys() - set(ORDER))
    return [Ancestor(name, lineage[name]["digest"], _choices(lineage[name]["settings"])) for name in names]


def in_words(settings: Mapping[str, Any]) -> dict[str, str]:
    """Flatten settings to one line each.

    Example:
        >>> in_words({"kind": "fne", "band": {"low": -0.25}, "layers": ["fc6", "fc7"], "l2": True})
        {'kind': 'fne', 'band.low': '-0.25', 'layers': 'fc6, fc7', 'l2': 'true'}
    """
    words: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            words |= {f"{key}.{inner}": text for inner, text in in_words(value).items()}
        elif isinstance(value, list):
            words[key] = ", ".join(_word(each) for each in value)
        else:
            words[key] = _word(value)
    return words


def _choices(settings: Mapping[str, Any]) -> dict[str, str]:
    return in_words({key: value for key, value in settings.items() if key not in FINDINGS})


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
