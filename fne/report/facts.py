"""What was run: the settings, counts and digests that the report page lists, as text.

Everything comes from the catalog and from the lineage of the evaluation, where each artifact records its
settings and its digest.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fne.core.settings import flattened
from fne.experiments.presets import load, papers
from fne.experiments.runs import split_digests
from fne.report.record import catalog_state
from fne.report.sources import History
from fne.store.artifact import Lineage
from fne.store.catalog import SPLITS, Captioned

# In pipeline order; ancestors that are not listed here follow in alphabetical order.
ORDER = ["images", "captions", "weights", "activations", "train_images", "statistics", "embeddings"]
ORDER += ["vocabulary", "tokens", "model", "tuned", "image_vectors", "caption_vectors", "ranks", "captioner"]
# The settings that may differ between the phases of training.
PHASE_KEYS = ["loss", "margin", "learning_rate"]
# Results that an artifact records among its settings; the page shows them in sections of their own.
RESULT_KEYS = {"shares"}


@dataclass(frozen=True)
class Ancestor:
    """One artifact that this run was made from."""

    name: str
    digest: str
    settings: dict[str, str]


@dataclass(frozen=True)
class LayerFractions:
    """One layer of a ternary embedding, in percent."""

    layer: str
    minus: float  # fraction of its values, like `zero` and `plus`
    zero: float
    plus: float
    dead: float  # fraction of its features that never vary among the training images


def settings_of(lineage: Lineage, name: str) -> dict[str, Any]:
    """Return the settings that made an artifact; empty if the run has no such artifact."""
    settings: dict[str, Any] = lineage.get(name, {}).get("settings", {})
    return settings


def main_settings(lineage: Lineage) -> dict[str, str]:
    """Return the most important settings, by title."""
    names = ("activations", "weights", "embeddings", "model")
    activations, weights, embedding, model = (flatten(settings_of(lineage, name)) for name in names)
    found = {
        "Backbone": activations.get("backbone"),
        "Weights": weights.get("name") or weights.get("file") or weights.get("kind"),
        "Embedding": embedding.get("layer" if embedding.get("kind") in ("layer", "plain") else "kind"),
        "Text encoder": model.get("text_encoder"),
        "Start": None if model.get("start") == "random" else model.get("start"),
        "Similarity": model.get("similarity"),
        "Loss": model.get("loss"),
        "Seed": model.get("seed"),
        "Image network": _tuning(lineage),
    }
    return {title: text for title, text in found.items() if text}


def _tuning(lineage: Lineage) -> str | None:
    """Return how the image network was tuned, or None if it was not."""
    tuned = flatten(settings_of(lineage, "tuned"))
    if not tuned:
        return None
    first, epochs, margin = (tuned.get(key) for key in ("first", "epochs", "margin"))
    return f"fine-tuned from layer {first}, epochs {epochs}, margin {margin}"


def head(
    lineage: Lineage, root: str, captioned: Iterable[Captioned], experiment: str | None
) -> dict[str, str]:
    """Return what the report is about, by title; `experiment` is DVC's name of it, None for `dvc repro`."""
    return catalog_head(lineage, root, captioned) | {
        "Experiment": experiment or "work tree (dvc repro)",
        "Features": feature_source(lineage),
    }


def catalog_head(lineage: Lineage, root: str, captioned: Iterable[Captioned]) -> dict[str, str]:
    """Return the data set of a page and the state of its catalog, which pages of the same catalog share."""
    return {"Data set": dataset_title(root, captioned), "Catalog": f"state {catalog_state(lineage)}"}


def dataset_title(root: str, captioned: Iterable[Captioned]) -> str:
    """Return the name of a data set: of a paper if its splits are known, otherwise that of its folder."""
    digests, path = split_digests(captioned), Path(root)
    for paper in papers():
        for facts in load("datasets", paper).values():
            known = facts.get("ids", {})
            if known and all(digests.get(split) == ids for split, ids in known.items()):
                return str(facts["title"])
    return path.name if path.suffix == "" else f"{path.parent.name}/{path.name}"


def feature_source(lineage: Lineage) -> str:
    """Return where the features of the images came from."""
    made = settings_of(lineage, "activations")
    if "joined" in made:
        return _stores(made["joined"])
    if "backbone" in made:
        weights = settings_of(lineage, "weights")
        kind = (
            "untrained" if weights.get("untrained") else weights.get("name") or weights.get("file") or "own"
        )
        network = f"{made['backbone']}, {made.get('crops', 'ten')} crops, {kind} weights"
        if "appended" in made:
            return f"{_stores(made['appended'])}; {network}"
        if "imported" in made:  # and recognized by some photos
            photos = made["checked"]["photos"]
            return f"imported from {made['imported']['source']}; {photos} photos agree with {network}"
        return f"extracted with {network}"
    if "appended" in made:
        return _stores(made["appended"])
    return f"imported from {made['source']}" if "source" in made else "unknown"


def _stores(sources: Sequence[Mapping[str, Any]]) -> str:
    return f"joined from {' and '.join(str(each['store']) for each in sources)}"


def counts(captioned: Iterable[Captioned], lineage: Lineage) -> dict[str, str]:
    """Return the numbers of images per split, of sentences and of known words, by title."""
    records = list(captioned)
    images = Counter(record.split for record in records)
    splits = ", ".join(f"{images[split]:,} {split}" for split in SPLITS if images[split])
    # The first word of a vocabulary stands for all unknown ones.
    words = settings_of(lineage, "tokens").get("words", 1) - 1
    return {
        "Images": splits,
        "Sentences": f"{sum(len(record.captions) for record in records):,}",
    } | ({"Known words": f"{words:,}"} if words else {})


def history_unit(lineage: Lineage) -> str:
    """Return what one step of the training history is: an epoch or a validation.

    A training run that starts from a closed form is validated before its first epoch.
    """
    model = settings_of(lineage, "model")
    every_epoch = not model.get("validate_every") and model.get("start", "random") == "random"
    return "epoch" if every_epoch else "validation"


def kept_sentence(settings: Mapping[str, Any], unit: str, then: str) -> str:
    """Return which weights a training run ended with, and what these are then.

    Example:
        >>> kept_sentence({"keep": "last"}, "epoch", "evaluated here")
        'The weights of the last epoch are the ones evaluated here.'
    """
    if settings.get("keep", "best") == "last":
        return f"The weights of the last {unit} are the ones {then}."
    return f"The weights of the best {unit} on the validation split are the ones {then}."


def phases(lineage: Lineage, history: History) -> list[dict[str, str]]:
    """Return the settings and the steps of each training phase, by key; empty for a single phase."""
    model = settings_of(lineage, "model")
    lists = {key: model[key] for key in PHASE_KEYS if isinstance(model.get(key), list)}
    number = max((len(values) for values in lists.values()), default=0)
    return _with_steps(
        [
            {key: _text(values[phase % len(values)]) for key, values in lists.items()}
            for phase in range(number)
        ],
        history,
    )


def ancestors(lineage: Lineage) -> list[Ancestor]:
    """Return the artifacts of a lineage in pipeline order, with flat settings."""
    names = [name for name in ORDER if name in lineage] + sorted(lineage.keys() - set(ORDER))
    found = []
    for name in names:
        settings = lineage[name]["settings"]
        chosen = {key: value for key, value in settings.items() if key not in RESULT_KEYS}
        found.append(Ancestor(name, lineage[name]["digest"], flatten(chosen)))
    return found


def layer_fractions(lineage: Lineage) -> list[LayerFractions]:
    """Return what `embed` recorded about each layer, first to last; nothing unless embeddings are ternary."""
    recorded = settings_of(lineage, "embeddings").get("shares", {})
    return [
        LayerFractions(layer, **{key: 100 * value for key, value in each.items()})
        for layer, each in recorded.items()
    ]


def flatten(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings as one level of text values.

    Example:
        >>> flatten({"kind": "fne", "band": {"low": -0.25}, "layers": ["fc6", "fc7"], "l2": True})
        {'kind': 'fne', 'band.low': '-0.25', 'layers': 'fc6, fc7', 'l2': 'true'}
    """
    return {
        key: ", ".join(map(_text, value)) if isinstance(value, list) else _text(value)
        for key, value in flattened(settings).items()
    }


def describing_facts(model: Mapping[str, Any]) -> dict[str, str]:
    """Return the main settings of a tagger or captioner, by title."""
    titles = {
        "Condition": "condition",
        "Enters as": "inject",
        "Cell": "cell",
        "Order": "order",
        "Seed": "seed",
    }
    found = {title: str(model[key]).replace("_", " ") for title, key in titles.items() if key in model}
    learns = model.get("learns")
    return found | ({"Learns": ", then ".join(map(str, learns))} if isinstance(learns, list) else {})


def describing_phases(model: Mapping[str, Any], history: History) -> list[dict[str, str]]:
    """Return the settings and the steps of each phase of a tagger or captioner; empty for a single phase."""
    learns = model.get("learns")
    rates = {
        key: model[key]
        for key in ("learning_rate", "concept_head_rate")
        if isinstance(model.get(key), list) and model[key]
    }
    rows = [
        {"learns": str(name)} | {key: f"{values[phase % len(values)]:g}" for key, values in rates.items()}
        for phase, name in enumerate(learns if isinstance(learns, list) else [])
    ]
    return _with_steps(rows, history)


def _with_steps(rows: Sequence[dict[str, str]], history: History) -> list[dict[str, str]]:
    """Return the rows of phases with the steps of each; a single phase has no row."""
    spans = history.phase_spans
    steps = ["{}–{}".format(*spans[phase]) if phase in spans else "none" for phase in range(1, 1 + len(rows))]
    return (
        [row | {f"{history.unit}s": own} for row, own in zip(rows, steps, strict=True)]
        if len(rows) > 1
        else []
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
