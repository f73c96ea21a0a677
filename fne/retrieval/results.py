"""What an evaluation leaves: metrics, their intervals, and the ranks of all queries."""

import json
from pathlib import Path

from fne.retrieval.evaluation import Evaluation
from fne.retrieval.protocols import metrics_name
from fne.retrieval.settings import Evaluate
from fne.store.arrays import write_arrays
from fne.store.files import write_text
from fne.store.lineage import Lineage


def write_results(
    evaluation: Evaluation, settings: Evaluate, lineage: Lineage, metrics: Path, intervals: Path, ranks: Path
) -> str:
    """Write the three files; return in a line what was found."""
    name = metrics_name(settings.split, settings.protocol)
    write_arrays(ranks, "ranks", evaluation.stored(), settings.model_dump() | {"name": name}, lineage)
    model = lineage["model"]["settings"]
    # Whether training got off the ground, for those who compare experiments.
    started = {"started": model["started"]} if "started" in model else {}
    found = evaluation.metrics(settings.recalls) | started
    sure = evaluation.intervals(settings.recalls)
    write_text(metrics, json.dumps({name: found}, indent=2) + "\n")
    write_text(intervals, json.dumps({name: sure}, indent=2) + "\n")
    low, high = sure["rsum"]
    return f"{name}: {found['images']} images, sum of recalls {found['rsum']:.1f} ({low:.1f} to {high:.1f})"
