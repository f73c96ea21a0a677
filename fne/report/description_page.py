"""What the pages about tags and about captions share: their frame, and the choice of their examples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fne.core.stage import input_digests
from fne.report.explanations import STRIP, Glance
from fne.report.facts import catalog_head, counts, describing_facts, describing_phases, settings_of
from fne.report.page import make_thumbnails, render_page
from fne.report.record import page_record
from fne.report.sources import History, Levels, read_history
from fne.store.artifact import Artifact, Lineage
from fne.store.catalog import Captioned, Image, image_root, read_captions, read_images
from fne.store.lineage import recorded_lineage


@dataclass(frozen=True)
class Frame:
    """What a page shows around its results."""

    kind: str  # the name of the model in the lineage
    lineage: Lineage
    history: History
    captioned: Sequence[Captioned]
    thumbnails: Mapping[str, str]  # a data URI per image id; images without one are shown by their id
    root: str  # the value of `catalog.root`
    record: str  # what the page records about itself, see `fne.report.record`

    @property
    def model(self) -> Mapping[str, Any]:
        """The settings of the model."""
        return settings_of(self.lineage, self.kind)


@dataclass(frozen=True)
class PageSource:
    """Where the frame of a page comes from: what a model wrote, and the catalog."""

    page: str  # its name in lineages and records, and the section of `params.yaml` that has its settings
    kind: str  # the name of the model in the lineage
    catalog: Sequence[Image]
    captioned: Sequence[Captioned]
    lineage: Lineage
    settings: Mapping[str, Any]
    root: str

    @classmethod
    def read(
        cls,
        page: str,
        kind: str,
        written: Artifact,
        catalog: tuple[Path, Path],
        settings: Mapping[str, Any],
        root: str,
    ) -> Self:
        """Read the two files of the catalog about which something was written."""
        images, images_artifact = read_images(catalog[0])
        captioned, captions_artifact = read_captions(catalog[1])
        # Without image files there is none that could be of another data set.
        known = [written, captions_artifact, *[images_artifact] * bool(images)]
        return cls(page, kind, images, captioned, recorded_lineage(*known), settings, root)

    def frame(
        self, history: Path, written: Artifact, main: str, item: str, levels: Levels, shown: Iterable[str]
    ) -> Frame:
        """Return the frame of a page.

        Args:
            history: the folder of the training of the model.
            main: the validation score that is drawn first.
            item: what losses are averaged over.
            levels: what the validation is compared with.
            shown: the images of the examples.
        """
        settings = {**self.settings, "root": self.root}
        return Frame(
            self.kind,
            self.lineage,
            read_history(history, written, levels, main=main, item=item),
            self.captioned,
            make_thumbnails(shown, self.catalog, image_root(self.root)),
            self.root,
            page_record(settings, self.lineage, input_digests(), self.page),
        )


def render_description(
    template: str,
    name: str,
    values: Mapping[str, Any],
    frame: Frame,
    facts: Mapping[str, str] | None = None,
    scripts: Sequence[str] = ("search.js",),
) -> str:
    """Return a page as HTML; equal inputs give equal text.

    Args:
        name: that of its metrics, such as `test_full`.
        values: what the template shows, by name.
        facts: facts of its own, by title.
    """
    shared = {
        "split": name.partition("_")[0],
        "phases": describing_phases(frame.model, frame.history),
        "facts": catalog_head(frame.lineage, frame.root, frame.captioned)
        | dict(facts or {})
        | describing_facts(frame.model)
        | counts(frame.captioned, frame.lineage),
    }
    return render_page(
        template,
        shared | dict(values),
        frame.lineage,
        frame.history,
        frame.thumbnails,
        frame.record,
        scripts,
    )


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
