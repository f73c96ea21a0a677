"""What the pages about tags and about captions share: their frame, and the choice of their examples."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fne.report.explanations import STRIP, Glance
from fne.report.facts import catalog_head, counts, describing_facts, describing_phases
from fne.report.frame import Frame
from fne.report.page import render_page


def render_description(
    template: str,
    name: str,
    model: Mapping[str, Any],
    values: Mapping[str, Any],
    frame: Frame,
    facts: Mapping[str, str] | None = None,
    scripts: Sequence[str] = ("search.js",),
) -> str:
    """Return a page as HTML; equal inputs give equal text.

    Args:
        name: that of its metrics, such as `test_full`.
        model: the settings of the tagger or captioner.
        values: what the template shows, by name.
        facts: facts of its own, by title.
    """
    shared = {
        "split": name.partition("_")[0],
        "phases": describing_phases(model, frame.history),
        "facts": catalog_head(frame.lineage, frame.root, frame.captioned)
        | dict(facts or {})
        | describing_facts(model)
        | counts(frame.captioned, frame.lineage),
    }
    return render_page(template, shared | dict(values), frame, scripts)


def at_a_glance(
    examples: Iterable[tuple[str, str, str, bool]], thumbnails: Mapping[str, str]
) -> list[Glance]:
    """Return three good examples and one failure; each has an id, a text, a note and whether it is good."""
    listed = [Glance(*each) for each in examples if each[0] in thumbnails and each[1]]
    good, bad = ([each for each in listed if each.good is wanted] for wanted in (True, False))
    return good[:STRIP] + bad[-1:]


def choose_thirds(scores: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    """Return positions of up to `count` images, best first: the best and worst third, and random others."""
    order = np.argsort(-scores, kind="stable")
    chosen = min(count, len(order))
    ends = chosen // 3
    between = order[ends : len(order) - ends]
    drawn = np.random.default_rng(seed).choice(len(between), chosen - 2 * ends, replace=False)
    return {
        "best": order[:ends],
        "middle": between[np.sort(drawn)],
        "worst": order[len(order) - ends :],
    }
