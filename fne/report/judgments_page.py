"""The page about the agreement of a model with what people say about pairs of images and captions."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.evaluation.baseline import Baseline
from fne.evaluation.judgments_file import (
    BASELINE,
    COLUMNS,
    DIFFERENCE,
    JUDGES,
    MODEL,
    REMEDY,
    TITLES,
    table,
)
from fne.report.facts import counts, main_settings
from fne.report.frame import Frame
from fne.report.interval_chart import IntervalChart, Row, interval_chart, interval_of
from fne.report.page import render_page

PAGE = "judgments_page"  # its section, and its name in records


@dataclass(frozen=True)
class Pair:
    """A judged pair; ranks are from 0, the worst of all pairs, to 1."""

    image: str
    caption: str
    grade: float
    score: float
    grade_rank: float
    score_rank: float

    @property
    def excess(self) -> float:
        """How much better the model likes the pair than people do."""
        return self.score_rank - self.grade_rank


def read_pairs(path: Path) -> list[Pair]:
    """Read the graded pairs of a table that `write_judgments` wrote."""
    rows = csv.DictReader(read_bytes(path).decode(errors="replace").splitlines())
    try:
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError(f"columns {rows.fieldnames}")
        used = [each for each in rows if each[MODEL]]
        grades, scores = (np.array([float(each[name]) for each in used]) for name in ("grade", MODEL))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: damaged ({error}); {REMEDY}") from None
    ranks = zip(_ranks(grades), _ranks(scores), strict=True)
    return [
        Pair(each["image"], each["caption"], grade, score, *both)
        for each, grade, score, both in zip(used, grades.tolist(), scores.tolist(), ranks, strict=True)
    ]


def _ranks(values: np.ndarray) -> list[float]:
    """Return the share of values below each, half of the equal ones included."""
    ascending = np.sort(values)
    both = [np.searchsorted(ascending, values, side) for side in ("left", "right")]
    shares: list[float] = ((both[0] + both[1]) / max(1, 2 * len(values))).tolist()
    return shares


def choose_disagreements(pairs: Sequence[Pair], count: int) -> list[tuple[str, list[Pair]]]:
    """Return the pairs that people like and the model does not, and the reverse, the clearest first."""
    ordered = sorted(pairs, key=lambda each: (each.excess, each.image, each.caption))
    half = min(count // 2, len(ordered) // 2)
    return (
        [
            ("People accept it, the model does not", ordered[:half]),
            ("The model accepts it, people do not", ordered[::-1][:half]),
        ]
        if half
        else []
    )


def charts(found: Mapping[str, Any]) -> list[IntervalChart]:
    """Draw the main figure of each group, and the differences from the baseline."""
    model, baseline = found[MODEL], found.get(BASELINE, {})
    main = "map_at_r" if "queries" in found else "spearman"
    rows = [
        Row(
            TITLES[group],
            [interval_of(side[group][main]) for side in (model, baseline) if group in side],
            found.get("judges", {}).get(main) if group == "all" else None,
        )
        for group, figures in model.items()
        if main in figures
    ]
    differences = [
        Row(f"{TITLES[group]}, {TITLES.get(name, name)}", [interval_of(each)])
        for group, figures in found.get(DIFFERENCE, {}).items()
        for name, each in figures.items()
    ]
    drawn = [(f"{TITLES[main]}, by pairs" if main == "spearman" else TITLES[main], rows)]
    drawn += [("Model minus closed-form baseline", differences)]
    return [interval_chart(title, each) for title, each in drawn if each]


def render_judgments(
    found: Mapping[str, Any],
    name: str,
    rsum: float,
    baseline: Baseline,
    examples: Sequence[tuple[str, Sequence[Pair]]],
    frame: Frame,
) -> str:
    """Return the page as HTML; equal inputs give equal text."""
    try:
        values = {"charts": charts(found), "rows": table(found)}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the figures of judgments are damaged ({error!r}); {REMEDY}") from None
    sentences = {
        caption_id: text
        for each in frame.captioned
        for caption_id, text in zip(each.caption_ids, each.captions, strict=True)
    }
    shared = {
        "found": found,
        "judged_by": JUDGES.get(str(found.get("judged_by")), "people"),
        "split": name.partition("_")[0],
        "rsum": rsum,
        "baseline_rsum": baseline.rsum,
        "examples": examples,
        "sentences": sentences,
        "facts": {**frame.head, **main_settings(frame.lineage), **counts(frame.captioned, frame.lineage)},
    }
    return render_page("judgments.html", values | shared, frame)
