"""`metrics/layers.json`: what was measured of every layer, and the same as a table for the terminal."""

import hashlib
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.core.terminal import aligned
from fne.store.artifact import Artifact, Contents, Done, Kind, Lineage, Lines, Sections
from fne.store.checksums import check_metrics, parse_metrics, write_metrics

NAME = "layers"  # in lineages and records
SECTIONS: Sections = {"layers": {}, "embed.source": {}}
PIPELINE = "pipelines/layers/dvc.yaml"
REMEDY = f"run `dvc repro {PIPELINE}`"
# Titles of what layers have, in the order of the table; what no layer has is left out.
COLUMNS = {
    "features": "features",
    "dead": "dead",
    "constant": "constant",
    "effective_rank": "effective rank",
    "bytes_float16": "float16 bytes",
    "bytes_ternary": "ternary bytes",
    "cka_text": "CKA text",
    "mutual_neighbors": "common neighbors",
    "probe": "linear probe",
    "cosine": "kNN cosine",
    "euclidean": "kNN Euclidean",
}


def write_layers(path: Path, found: dict[str, Any], settings: dict[str, Any], lineage: Lineage) -> None:
    """Write what `measure` returned, with its settings and what it was made from."""
    write_metrics(path, found | {"made_with": settings, "made_from": lineage})


def read_layers(path: Path) -> tuple[dict[str, Any], Artifact]:
    """Read what was measured, as an artifact."""
    content = read_bytes(path)
    try:
        found = parse_metrics(content)
        digest = hashlib.sha256(content).hexdigest()
        settings = dict(found["made_with"])
        # Its keys stand by themselves: the section `layers` has some of the same names.
        sections = SECTIONS | {"tokenize": settings["tokenize"]}
        artifact = Artifact(
            path, NAME, digest, settings, found["made_from"], sections=sections, pipeline=PIPELINE
        )
        [(each["name"], each["features"]) for each in [*found["layers"], *found["sets"]]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error}); {REMEDY}") from None
    return found, artifact


def table(found: dict[str, Any]) -> list[list[str]]:
    """Return the table of the layers, its titles first; the sum of recalls has its interval."""
    layers = found["layers"]
    columns = [key for key in COLUMNS if any(key in layer for layer in layers)]
    sums = {each["name"]: each for each in found["sets"] if each["kind"] == "layer"}
    rsum = ["rsum"] if any(each["rsum"] is not None for each in found["sets"]) else []
    rows = [["layer", *rsum, *(COLUMNS[key] for key in columns)]]
    for layer in layers:
        values = [_text(layer.get(key)) for key in columns]
        rows.append([layer["name"], *[interval(sums[layer["name"]])] * len(rsum), *values])
    return rows


def interval(part: dict[str, Any]) -> str:
    """Return a sum of recalls and its interval as text.

    Example:
        >>> interval({"rsum": 236.08, "low": 224.5, "high": 247.6})
        '236.1 (224.5 to 247.6)'
    """
    if part["rsum"] is None:
        return "–"
    return f"{part['rsum']:.1f} ({part['low']:.1f} to {part['high']:.1f})"


def chosen(found: dict[str, Any]) -> Lines:
    """Return which layer each measure would choose, and how well it orders the layers as recall does."""
    layers = [each for each in found["sets"] if each["kind"] == "layer" and each["rsum"] is not None]
    if not layers:
        return []
    best = max(layers, key=lambda each: float(each["rsum"]))
    lines = [f"best single layer by recall: {best['name']}, {interval(best)}; chance {found['chance']:.1f}"]
    for key, correlation in found["agreement"].items():
        known = [each for each in found["layers"] if each.get(key) is not None]
        if known and correlation is not None:
            own = max(known, key=lambda each: float(each[key]))["name"]
            lines.append(f"{COLUMNS[key]} would choose {own}; rank correlation with recall {correlation:.2f}")
    return lines


def _describe(path: Path) -> Lines:
    found, _ = read_layers(path)
    images, rows = found["images"], table(found)
    metric = f", labels by {found['label_metric']}" if found["label_metric"] else ""
    combined = [each for each in found["sets"] if each["kind"] != "layer" and each["rsum"] is not None]
    return [
        f"{path}: {len(rows) - 1} layers, {images['train']} training and {images['val']} validation "
        f"images{metric}",
        *(f"  {line}" for line in aligned(rows)),
        *(f"  {each['kind']:<6} {each['name']:<20} {interval(each)}" for each in combined),
        *(f"  {line}" for line in chosen(found)),
    ]


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"


def _open(path: Path) -> Contents:
    return Contents(read_layers(path)[1])


def _check(path: Path, done: Done) -> Contents:
    check_metrics(path)
    return _open(path)


KIND = Kind("layers.json", _check, _open, _describe)
