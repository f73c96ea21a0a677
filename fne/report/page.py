"""The page itself: everything it says, put into words and handed to the template.

The template escapes whatever it prints, and the page forbids itself scripts and network
requests, so a caption can say anything without doing anything.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fne.report.chance import chance_of_mean, chance_of_median, chance_of_recall
from fne.report.curves import learning_curves, rank_histogram, recall_curve
from fne.report.evaluation import Direction, Evaluation
from fne.report.gallery import Gallery
from fne.report.history import History
from fne.store.catalog import Captioned
from fne.store.lineage import Lineage

# In the order of their making; ancestors not named here follow by name.
ORDER = ["images", "captions", "weights", "activations", "train_images", "statistics", "embeddings"]
ORDER += ["vocabulary", "tokens", "model", "image_vectors", "caption_vectors", "ranks"]


@dataclass(frozen=True)
class Ancestor:
    """One artifact that this run was made from."""

    name: str
    digest: str
    settings: dict[str, str]


def render(
    evaluation: Evaluation,
    lineage: Lineage,
    history: History,
    gallery: Gallery,
    captioned: Iterable[Captioned],
    thumbnails: Mapping[str, str],
) -> str:
    """Return the page as HTML; equal inputs give equal text."""
    captions = {
        record.id: dict(zip(record.caption_ids, record.captions, strict=True)) for record in captioned
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    chances = {name: _chances(getattr(evaluation, name)) for name in ("image_to_text", "text_to_image")}
    return environment.get_template("page.html").render(
        evaluation=evaluation,
        chances=chances,
        chance_rsum=sum(sum(chance["recalls"].values()) for chance in chances.values()),
        recall_curve=recall_curve,
        rank_histogram=rank_histogram,
        learning_curves=learning_curves(history),
        gallery=gallery,
        captions=captions,
        sentences={id_: text for texts in captions.values() for id_, text in texts.items()},
        thumbnails=thumbnails,
        untrained=lineage.get("weights", {}).get("settings", {}).get("untrained", False),
        facts=_facts(lineage),
        ancestors=ancestors(lineage),
    )


def ancestors(lineage: Lineage) -> list[Ancestor]:
    """Return the artifacts of a lineage in the order of their making, settings in words."""
    names = [name for name in ORDER if name in lineage] + sorted(lineage.keys() - set(ORDER))
    return [Ancestor(name, lineage[name]["digest"], in_words(lineage[name]["settings"])) for name in names]


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


def _facts(lineage: Lineage) -> dict[str, str]:
    names = ("activations", "weights", "embeddings", "model")
    activations, weights, embedding, model = (
        in_words(lineage.get(name, {}).get("settings", {})) for name in names
    )
    facts = {
        "Backbone": activations.get("backbone"),
        "Weights": weights.get("name") or weights.get("file") or weights.get("kind"),
        "Embedding": embedding.get("layer" if embedding.get("kind") == "layer" else "kind"),
        "Text encoder": model.get("text_encoder"),
        "Similarity": model.get("similarity"),
        "Loss": model.get("loss"),
    }
    return {title: words for title, words in facts.items() if words}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _chances(direction: Direction) -> dict[str, Any]:
    pool, counts = direction.pool, direction.true_counts
    return {
        "recalls": {k: chance_of_recall(min(k, pool), pool, counts) for k in direction.recalls},
        "median": chance_of_median(pool, counts),
        "mean": chance_of_mean(pool, counts),
    }
