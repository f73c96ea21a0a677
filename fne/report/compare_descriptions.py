"""Tags and captions of two runs side by side, with a paired bootstrap over the images that both describe.

Only images of the split that was scored count: a file may also describe images that a model learned from. A
run without such a file, or two runs with the same one, have nothing to compare. What `NAME:tuned` says is
what its tuned taggers and captioners wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.settings import Section
from fne.describing.annotations import read_tagged, read_written
from fne.describing.concepts import recorded_source
from fne.describing.data import reference_sentences
from fne.describing.model_file import BEFORE
from fne.describing.settings import CAPTIONER, TAGGER
from fne.evaluation.metrics.caption_metrics import cider_d
from fne.evaluation.paired import SAMPLES, SEED, Difference, difference
from fne.experiments.effective_settings import SECTIONS
from fne.experiments.grids import Grid
from fne.experiments.runs import CAPTIONS, TUNED, RecordedRuns, Run, read_or_warn, tuned_path
from fne.report.facts import flatten, settings_of
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned, read_captions
from fne.store.checksums import read_metrics

BLOCK = 100  # samples at once
USUAL_SPLIT = "test"


@dataclass(frozen=True)
class Change:
    """A setting that differs."""

    key: str
    a: str
    b: str


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
    digits: int  # decimals of its mean
    split: str
    images: int
    changes: list[Change]
    difference: Difference
    pairs: list[Pair]


def compare_descriptions(project: RecordedRuns, a: Run, b: Run, count: int) -> list[Descriptions]:
    """Compare what two runs say about the same images, as far as both have files that differ."""
    catalog = project.file(a, CAPTIONS)
    if catalog is None or a.hashes.get(CAPTIONS) != b.hashes.get(CAPTIONS):
        return []
    found = []
    for kind in KINDS:
        files = [_place(run, kind.file) for run in (a, b)]
        paths = [project.file(run, file) for run, file in zip((a, b), files, strict=True)]
        if a.hashes.get(files[0]) == b.hashes.get(files[1]) or not all(paths):
            continue
        split = _scored_split(project, a, kind)
        captioned = {each.id: each for each in read_captions(catalog)[0] if each.split == split}
        sides = [read_or_warn(partial(kind.read, path, captioned), kind.file) for path in paths if path]
        if len(sides) == 2 and sides[0] and sides[1] and sides[0].said.keys() & sides[1].said.keys():
            found.append(_described(kind, split, sides[0], sides[1], count))
    return found


def grid(found: Descriptions) -> Grid:
    """Return a comparison of descriptions as a table for the terminal."""
    each = found.difference
    form = f".{found.digits}f"
    row = [found.score, f"{each.a:{form}}", f"{each.b:{form}}", f"{each.b - each.a:+{form}}"]
    interval = f"{each.low:+{form}} to {each.high:+{form}}"
    return Grid(
        f"{found.kind.capitalize()} of {found.images:,} images of the split {found.split}",
        ["mean per image", "A", "B", "B - A", "interval", "p", "verdict"],
        [[*row, interval, f"{each.p:.3f}", each.verdict]],
    )


@dataclass(frozen=True)
class Side:
    """A file with what a run says: by image, with the references."""

    artifact: Artifact
    said: dict[str, tuple[Said, list[str]]]


def read_tags(path: Path, captioned: Mapping[str, Captioned]) -> Side:
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
    return Side(file.artifact, found)


def read_sentences(path: Path, captioned: Mapping[str, Captioned]) -> Side:
    """Return the caption of each image that people described, with its CIDEr-D, and what people wrote."""
    written, artifact = read_written(path)
    records = [captioned[each] for each in written if each in captioned and captioned[each].captions]
    references = reference_sentences(records)
    if len(references) < 2:  # CIDEr-D is not defined for one image
        return Side(artifact, {})
    values = cider_d({each: written[each].caption for each in references}, references).per_image
    scores = dict(zip(references, values.tolist(), strict=True))
    found = {}
    for record in records:
        known = {word for sentence in references[record.id] for word in sentence.split()}
        parts = [(word, word in known) for word in written[record.id].caption.split()]
        found[record.id] = Said(scores[record.id], parts, []), list(record.captions)
    return Side(artifact, found)


@dataclass(frozen=True)
class Kind:
    """What a run may say about images."""

    name: str
    file: str
    scores: str  # the file that says which split was scored
    score: str
    digits: int
    model: str
    read: Callable[[Path, Mapping[str, Captioned]], Side]


KINDS = (
    Kind(
        "tags",
        "annotations/tags.jsonl",
        "metrics/tag_intervals.json",
        "F1",
        1,
        TAGGER,
        read_tags,
    ),
    Kind(
        "captions",
        "annotations/captions.jsonl",
        "metrics/caption_intervals.json",
        "CIDEr-D",
        3,
        CAPTIONER,
        read_sentences,
    ),
)


def _place(run: Run, path: str) -> str:
    return tuned_path(path) if run.name.endswith(f":{TUNED}") else path


def _scored_split(project: RecordedRuns, run: Run, kind: Kind) -> str:
    """Return the split that a run scored; the usual one if its scores are not here."""
    path = project.file(run, _place(run, kind.scores))
    found = read_or_warn(lambda: read_metrics(path, "run `dvc repro`"), kind.scores) if path else None
    settings = (found or {}).get("made_with")
    return str(settings.get("split", USUAL_SPLIT)) if isinstance(settings, dict) else USUAL_SPLIT


def _changes(kind: Kind, a: Artifact, b: Artifact) -> list[Change]:
    """Return the settings of training and writing that differ, as the files record them."""

    def recorded(file: Artifact) -> dict[str, str]:
        model = settings_of(file.lineage, kind.model)
        made = {f"train_{kind.model}": model}
        if BEFORE[kind.model] in file.lineage:
            trained = settings_of(file.lineage, BEFORE[kind.model])
            made = {f"train_{kind.model}": trained, f"tune_{kind.model}": model}
        made[f"write_{kind.name}"] = file.settings
        return {
            f"{name}.{key}": text
            for name, settings in made.items()
            for key, text in flatten(_only(settings, SECTIONS[name])).items()
        }

    before, after = recorded(a), recorded(b)
    return [
        Change(key, before.get(key, "-"), after.get(key, "-"))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def _only(settings: Mapping[str, Any], section: type[Section]) -> dict[str, Any]:
    """Return settings without results, such as the best epoch."""
    return {key: value for key, value in settings.items() if key in section.model_fields}


def _described(kind: Kind, split: str, a_side: Side, b_side: Side, count: int) -> Descriptions:
    a, b = a_side.said, b_side.said
    pairs = [Pair(each, (a[each][0], b[each][0]), a[each][1]) for each in sorted(a.keys() & b.keys())]
    scores = np.array([[side.score for side in each.sides] for each in pairs]).T  # (2, images)
    order = np.argsort(-np.abs(scores[1] - scores[0]), kind="stable")
    differing = [pairs[place] for place in order.tolist() if pairs[place].sides[0] != pairs[place].sides[1]]
    drawn = _resample(scores)
    # Each run has one seed here, so no side is called better.
    a_mean, b_mean = scores.mean(axis=1).tolist()
    tested = difference(kind.score, a_mean, b_mean, drawn, enough=False)
    changes = _changes(kind, a_side.artifact, b_side.artifact)
    return Descriptions(
        kind.name, kind.score, kind.digits, split, len(pairs), changes, tested, differing[:count]
    )


def _resample(scores: np.ndarray) -> np.ndarray:
    """Return the means of both sides (2, samples) over resampled images, the same ones for both."""
    generator, images = np.random.default_rng(SEED), scores.shape[1]
    blocks: Sequence[np.ndarray] = [
        scores[:, generator.integers(images, size=(BLOCK, images))].mean(axis=2)
        for _ in range(SAMPLES // BLOCK)
    ]
    found: np.ndarray = np.concatenate(blocks, axis=1)
    return found
