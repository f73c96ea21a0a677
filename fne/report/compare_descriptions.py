"""Tags and captions of two runs side by side, with a paired bootstrap over the images that both describe.

A run without such a file, or two runs with the same one, have nothing to compare.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fne.describing.annotations import read_tagged, read_written
from fne.describing.concepts import recorded_source
from fne.describing.data import reference_sentences
from fne.describing.settings import TAGGER
from fne.evaluation.metrics.caption_metrics import cider_d
from fne.evaluation.paired import SAMPLES, SEED, Difference, difference
from fne.experiments.grids import Grid
from fne.experiments.runs import CAPTIONS, RecordedRuns, Run, read_or_warn
from fne.store.catalog import Captioned, read_captions

BLOCK = 100  # samples at once


@dataclass(frozen=True)
class Said:
    """What one side says about an image: parts, each with whether it is right, and what it misses."""

    score: float
    parts: list[tuple[str, bool]]
    missed: list[str]


@dataclass(frozen=True)
class Pair:
    """An image with what both sides say, and the references: true tags, or what people wrote."""

    id: str
    sides: tuple[Said, Said]
    references: list[str]


@dataclass(frozen=True)
class Descriptions:
    """Tags or captions of two runs: the images that differ most first."""

    kind: str
    score: str  # the name of the score per image
    images: int
    difference: Difference
    pairs: list[Pair]


def compare_descriptions(project: RecordedRuns, a: Run, b: Run, count: int) -> list[Descriptions]:
    """Compare what two runs say about the same images, as far as both have files that differ."""
    catalog = project.file(a, CAPTIONS)
    if catalog is None or a.hashes.get(CAPTIONS) != b.hashes.get(CAPTIONS):
        return []
    found = []
    for kind, (file, score, read) in KINDS.items():
        paths = [project.file(run, file) for run in (a, b)]
        if a.hashes.get(file) == b.hashes.get(file) or not all(paths):
            continue
        captioned = {each.id: each for each in read_captions(catalog)[0]}
        sides = [read_or_warn(partial(read, path, captioned), file) for path in paths if path]
        if len(sides) == 2 and sides[0] and sides[1] and sides[0].keys() & sides[1].keys():
            found.append(_described(kind, score, sides[0], sides[1], count))
    return found


def grid(found: Descriptions) -> Grid:
    """Return a comparison of descriptions as a table for the terminal."""
    each = found.difference
    row = [found.score, f"{each.a:.3f}", f"{each.b:.3f}", f"{each.b - each.a:+.3f}"]
    interval = f"{each.low:+.3f} to {each.high:+.3f}"
    return Grid(
        f"{found.kind.capitalize()} of {found.images:,} images",
        ["mean per image", "A", "B", "B - A", "interval", "p", "verdict"],
        [[*row, interval, f"{each.p:.3f}", each.verdict]],
    )


def read_tags(path: Path, captioned: Mapping[str, Captioned]) -> dict[str, tuple[Said, list[str]]]:
    """Return the tags of each image that has true ones, with its F1 in percent, and the true tags."""
    file = read_tagged(path)
    names = recorded_source(file.artifact.lineage[TAGGER]["settings"]).names
    found = {}
    for each in file.images:
        true = names(captioned[each.id]) if each.id in captioned else set()
        tags = each.tags if each.tags is not None else each.top or []
        if true:
            f1 = 200 * len(true & {*tags}) / (len(true) + len(tags))
            said = Said(f1, [(tag, tag in true) for tag in tags], sorted(true - {*tags}))
            found[each.id] = said, sorted(true)
    return found


def read_sentences(path: Path, captioned: Mapping[str, Captioned]) -> dict[str, tuple[Said, list[str]]]:
    """Return the caption of each image that people described, with its CIDEr-D, and what people wrote."""
    written, _ = read_written(path)
    records = [captioned[each] for each in written if each in captioned and captioned[each].captions]
    references = reference_sentences(records)
    if len(references) < 2:  # CIDEr-D is not defined for one image
        return {}
    values = cider_d({each: written[each].caption for each in references}, references).per_image
    scores = dict(zip(references, values.tolist(), strict=True))
    found = {}
    for record in records:
        known = {word for sentence in references[record.id] for word in sentence.split()}
        parts = [(word, word in known) for word in written[record.id].caption.split()]
        found[record.id] = Said(scores[record.id], parts, []), list(record.captions)
    return found


Read = Callable[[Path, Mapping[str, Captioned]], dict[str, tuple[Said, list[str]]]]
KINDS: dict[str, tuple[str, str, Read]] = {
    "tags": ("annotations/tags.jsonl", "F1", read_tags),
    "captions": ("annotations/captions.jsonl", "CIDEr-D", read_sentences),
}


def _described(
    kind: str,
    score: str,
    a: Mapping[str, tuple[Said, list[str]]],
    b: Mapping[str, tuple[Said, list[str]]],
    count: int,
) -> Descriptions:
    pairs = [Pair(each, (a[each][0], b[each][0]), a[each][1]) for each in sorted(a.keys() & b.keys())]
    scores = np.array([[side.score for side in each.sides] for each in pairs]).T  # (2, images)
    order = np.argsort(-np.abs(scores[1] - scores[0]), kind="stable")
    differing = [pairs[place] for place in order.tolist() if pairs[place].sides[0] != pairs[place].sides[1]]
    drawn = _resample(scores)
    # Each run has one seed here, so no side is called better.
    a_mean, b_mean = scores.mean(axis=1).tolist()
    tested = difference(score, a_mean, b_mean, drawn, enough=False)
    return Descriptions(kind, score, len(pairs), tested, differing[:count])


def _resample(scores: np.ndarray) -> np.ndarray:
    """Return the means of both sides (2, samples) over resampled images, the same ones for both."""
    generator, images = np.random.default_rng(SEED), scores.shape[1]
    blocks: Sequence[np.ndarray] = [
        scores[:, generator.integers(images, size=(BLOCK, images))].mean(axis=2)
        for _ in range(SAMPLES // BLOCK)
    ]
    found: np.ndarray = np.concatenate(blocks, axis=1)
    return found
