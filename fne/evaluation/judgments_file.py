"""`metrics/judgments.json`, and the table of judged pairs beside it.

The file has each figure with its 95 % interval over images, those of the model, of the baseline and of their
paired difference, and the agreement of the judges, which is a ceiling. The table has the scores of both, and
the pairs that were left out with the reason.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import write_text
from fne.core.terminal import aligned
from fne.evaluation.intervals import LEVEL, SAMPLES
from fne.evaluation.judgments import Graded, RightSets
from fne.store.artifact import Artifact, Contents, Done, Kind, Lineage, Lines
from fne.store.checksums import check_metrics, read_metrics, write_metrics

SHOWN = 3  # pairs that are left out, in lines
SIDES = MODEL, BASELINE, DIFFERENCE = "model", "baseline", "difference"
MADE_FROM, NONE = "made_from", "—"
COLUMNS = ("image", "caption", "grade", MODEL, BASELINE, "left_out")
REMEDY = "run `dvc repro pipelines/judgments/dvc.yaml`"
TITLES = {
    "all": "all pairs",
    "without_own": "without own captions",
    "within_image": "within an image",
    "image_to_text": "image → sentences",
    "text_to_image": "sentence → images",
    "spearman": "Spearman",
    "tau_b": "Kendall τb",
    "tau_c": "Kendall τc",
    "auc": "AUC",
    "map_at_r": "mAP@R",
    "r_precision": "R-Precision",
}
JUDGES = {
    "experts": "experts",
    "crowd": "a crowd",
    "table": "a table of grades",
    "eccv": "ECCV Caption",
    "cxc": "CrissCrossed Captions",
}


def write_judgments(
    path: Path,
    pairs: Path,
    name: str,
    found: dict[str, Any],
    judged: Graded | RightSets,
    scores: Mapping[str, np.ndarray],
    lineage: Lineage,
) -> None:
    """Write the figures, under the name of the split and protocol, and the table of pairs."""
    made_from = {each: entry["digest"] for each, entry in sorted(lineage.items())}
    write_metrics(path, {name: found | {"level": LEVEL, "samples": SAMPLES}, MADE_FROM: made_from})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    if isinstance(judged, Graded):
        both = [scores.get(side) for side in (MODEL, BASELINE)]
        for place, (image, caption) in enumerate(zip(judged.images, judged.captions, strict=True)):
            values = ["" if each is None else f"{each[place]:.6g}" for each in both]
            writer.writerow([image, caption, f"{judged.grades[place]:g}", *values, ""])
    writer.writerows([image, caption, "", "", "", reason] for image, caption, reason in judged.left_out)
    write_text(pairs, text.getvalue())


def left_out_lines(judged: Graded | RightSets, pairs: Path) -> list[str]:
    """Return lines about what was left out; all of it is listed in the table of pairs."""
    if not judged.left_out:
        return []
    first = [" ".join(filter(None, each[:2])) + f": {each[2]}" for each in judged.left_out[:SHOWN]]
    return [
        *(f"left out: {each}" for each in first),
        f"left out: {len(judged.left_out):,}, listed in {pairs}",
    ]


def headline(name: str, found: Mapping[str, Any]) -> str:
    """Return the main figure of the model as a line, with its interval and the difference to the baseline."""
    sets = "queries" in found
    group, figure = ("text_to_image", "map_at_r") if sets else ("all", "spearman")
    model, baseline, difference = (_figure(found, side, group, figure) for side in SIDES)
    title = "mAP@R of images for sentences" if sets else "Spearman's correlation with the grades"
    return (
        f"{name}: {_amount(found)}; {title} {model}, closed-form baseline {baseline}, difference {difference}"
    )


def read_judged(path: Path, evaluation: Artifact) -> dict[str, Any]:
    """Read the figures that `write_judgments` wrote of the same evaluation; those of another are refused."""
    content = read_metrics(path, REMEDY)
    name = evaluation.settings["name"]
    if not isinstance(content.get(name), dict) or not isinstance(content.get(MADE_FROM), dict):
        raise InputError(f"{path}: has no figures for {name}; {REMEDY}")
    for each in ("model", "captions", "embeddings"):
        own, other = (str(own) for own in (content[MADE_FROM].get(each), _digest(evaluation, each)))
        if own != other:
            raise InputError(
                f"{path} was made from {each} {own[:12]}…, but the evaluation from {other[:12]}…; {REMEDY}"
            )
    found: dict[str, Any] = content[name]
    return found


def _digest(evaluation: Artifact, name: str) -> str | None:
    return evaluation.lineage.get(name, {}).get("digest")


def table(found: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the figures of each group: of the model, of the baseline, their difference, the judges."""
    judges = found.get("judges", {})
    return [
        (
            f"{TITLES[group]}, {TITLES.get(name, name)}",
            [
                *(_figure(found, side, group, name) for side in SIDES),
                f"{judges[name]:.3f}" if group == "all" and name in judges else NONE,
            ],
        )
        for group, figures in found[MODEL].items()
        for name in figures
    ]


def _figure(found: Mapping[str, Any], side: str, group: str, name: str) -> str:
    own, sign = found.get(side, {}).get(group, {}).get(name), "+" if side == DIFFERENCE else ""
    return f"{own['value']:{sign}.3f} ({own['low']:{sign}.3f} to {own['high']:{sign}.3f})" if own else NONE


def _amount(found: Mapping[str, Any]) -> str:
    judged = (
        f"{sum(found['queries'].values()):,} queries" if "queries" in found else f"{found['pairs']:,} pairs"
    )
    return f"{judged} judged by {JUDGES[found['judged_by']]}, {found['left_out']:,} left out"


def _describe(path: Path) -> Lines:
    content = read_metrics(path, REMEDY)
    try:
        return [
            line for name, found in content.items() if name != MADE_FROM for line in _lines(path, name, found)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged ({error!r}); {REMEDY}") from None


def _lines(path: Path, name: str, found: Mapping[str, Any]) -> Lines:
    rows = [["", "model", "closed-form baseline", "difference", "judges"]]
    rows += [[title, *cells] for title, cells in table(found)]
    acceptable = found.get("acceptable")  # only of graded pairs
    note = f"  AUC counts pairs with a grade of at least {acceptable or 0:g} as right"
    return [
        f"{path}: {name}, {_amount(found)}; 95 % intervals over images",
        *(f"  {line}" for line in aligned(rows)),
        *[note] * (acceptable is not None),
    ]


def _check(path: Path, done: Done) -> Contents:
    check_metrics(path)
    return Contents()


KIND = Kind("judgments.json", _check, None, _describe)
