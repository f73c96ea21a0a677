"""The two files about what a model wrote: metrics for DVC, and beside them intervals and what a page shows.

The second file names what was scored and the digest of the metrics. So a page refuses scores of other words,
and metrics and intervals of different runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.describing.model_file import PIPELINES
from fne.store.artifact import Artifact
from fne.store.checksums import metrics_digest, read_metrics, write_metrics

FAULTS = (KeyError, TypeError, ValueError, AttributeError, StopIteration)  # what other scores raise


def write_score_files(
    metrics: Path,
    intervals: Path,
    found: dict[str, Any],
    details: dict[str, Any],
    settings: Mapping[str, Any],
    written: Artifact,
) -> None:
    """Write metrics and what goes beside them, with the settings and what was scored."""
    made_from = {written.name: written.digest, "metrics": metrics_digest(found)}
    write_metrics(metrics, found)
    write_metrics(intervals, details | {"made_with": dict(settings), "made_from": made_from})


def read_score_files(
    metrics: Path, intervals: Path, written: Artifact, model: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `write_score_files` wrote about the words of a kind of model."""
    remedy = f"run `dvc repro {PIPELINES[model]}`"
    found, details = read_metrics(metrics, remedy), read_metrics(intervals, remedy)
    try:
        scored, digest = details["made_from"][written.name], details["made_from"]["metrics"]
    except FAULTS as error:
        raise unfit(metrics, intervals, model, error) from None
    if scored != written.digest:
        raise InputError(
            f"{intervals} was made from {written.name} {scored[:12]}…, but {written.path} holds "
            f"{written.name} {written.digest[:12]}…; {remedy}"
        )
    if digest != metrics_digest(found):
        raise InputError(f"{metrics} and {intervals} are of different runs; {remedy}")
    return found, details


def unfit(metrics: Path, intervals: Path, model: str, error: Exception) -> InputError:
    """Return the error for files that are something else."""
    return InputError(
        f"{metrics} and {intervals} are not the scores of a {model} ({error!r}); "
        f"run `dvc repro {PIPELINES[model]}`"
    )
