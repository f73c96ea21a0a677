"""The baseline of a trained model: what closed-form alignment reaches with the same features and split.

`metrics/baseline.json` holds the recalls of the closed form under the name of the split and the protocol, as
`metrics/retrieval.json` does, with its settings and the digests of the embeddings and tokens.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.store.artifact import Artifact, Lineage, Sections
from fne.store.checksums import parse_metrics, write_metrics

INPUTS = ("embeddings", "tokens")
# What the settings of the file come from.
SECTIONS: Sections = {"baseline": {}, "evaluate": {}}
# The metrics that the file holds.
KEPT = ("image_to_text", "text_to_image", "rsum", "chance", "images", "captions")


@dataclass(frozen=True)
class Baseline:
    """The sum of recalls of the closed form and its 95 % interval; None where it cannot be computed."""

    rsum: float | None
    low: float | None
    high: float | None
    reason: str = ""
    validation: float | None = None  # the sum of recalls on the validation images, beside that of a training


def write_baseline(
    path: Path,
    name: str,
    metrics: Mapping[str, Any],
    interval: Mapping[str, float],
    settings: dict[str, Any],
    lineage: Lineage,
    validation: float,
) -> str:
    """Write the baseline of a split and protocol; return it as one line.

    Args:
        metrics: of the closed form, as in `metrics/retrieval.json`.
        interval: `low` and `high` of the sum of recalls.
        validation: the sum of recalls on the validation images.
    """
    kept = {key: metrics[key] for key in KEPT}
    low, high = interval["low"], interval["high"]
    found = kept | {"rsum_low": low, "rsum_high": high, "validation_rsum": validation}
    _write(path, {name: found}, settings, lineage)
    baseline = f"closed-form baseline {metrics['rsum']:.1f} ({low:.1f} to {high:.1f})"
    return f"{name}: {baseline}, chance {metrics['chance']:.1f}"


def write_no_baseline(path: Path, name: str, reason: str, settings: dict[str, Any], lineage: Lineage) -> str:
    """Write why there is no baseline; return it as one line."""
    _write(path, {name: {}, "reason": reason}, settings, lineage)
    return f"{name}: no closed-form baseline ({reason})"


def read_baseline(path: Path, name: str, lineage: Lineage) -> Baseline:
    """Read the baseline of an evaluation of this lineage, by the name of its split and protocol."""
    content = parse_baseline(read_bytes(path), str(path))
    for each in INPUTS:
        own, other = str(content["made_from"].get(each)), str(lineage.get(each, {}).get("digest"))
        if own != other:
            raise InputError(
                f"{path} was made from {each} {own[:12]}…, but the evaluation from {other[:12]}…; "
                "run `dvc repro`"
            )
    if name not in content:
        raise InputError(f"{path}: has no results for {name}; run `dvc repro baseline`")
    return baseline_of(content, name)


def parse_baseline(content: bytes, place: str) -> dict[str, Any]:
    """Return the content of a baseline file."""
    try:
        found = parse_metrics(content)
        if not isinstance(found.get("made_from"), dict):
            raise ValueError("it names no inputs")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: damaged ({error}); run `dvc repro --force baseline`") from None
    return found


def baseline_of(content: Mapping[str, Any], name: str) -> Baseline:
    """Return the baseline of a split and protocol from the content of a baseline file."""
    found = content.get(name)
    numbers = found if isinstance(found, dict) else {}

    def number(key: str) -> float | None:
        value = numbers.get(key)
        return float(value) if isinstance(value, int | float) else None

    rsum, low, high = number("rsum"), number("rsum_low"), number("rsum_high")
    return Baseline(rsum, low, high, str(content.get("reason", "")), number("validation_rsum"))


def baseline_artifact(path: Path) -> Artifact:
    """Return a baseline file as an artifact, with its settings and what it was made from."""
    content = read_bytes(path)
    found = parse_baseline(content, str(path))
    lineage = {name: {"digest": digest, "settings": {}} for name, digest in found["made_from"].items()}
    settings, digest = found.get("made_with", {}), hashlib.sha256(content).hexdigest()
    return Artifact(path, "baseline", digest, settings, lineage, sections=SECTIONS)


def _write(path: Path, content: dict[str, Any], settings: dict[str, Any], lineage: Lineage) -> None:
    origin = {"made_with": settings, "made_from": {each: lineage[each]["digest"] for each in INPUTS}}
    write_metrics(path, content | origin)
