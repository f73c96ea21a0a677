"""Judged pairs of images and captions: what people say about them, in four formats.

- Flickr8k's `ExpertAnnotations.txt`: image, caption (`x.jpg#2`), a grade from 1 to 4 by each of 3 experts;
- its `CrowdFlowerAnnotations.txt`: image, caption, the fraction of yes, the numbers of yes and of no;
- a table with the columns `image`, `caption` (its id or its text) and `grade`, separated by commas or tabs;
- a YAML file that names truth of a package: `package: eccv-caption`, its `version`, and `truth`, `eccv` or
  `cxc`. Its truth is a set of right answers for each query, and not a grade for each pair.

Pairs whose image or caption is not in the split that is scored are left out, and listed.
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from fne.core.errors import InputError, LinesError
from fne.core.files import read_bytes
from fne.core.settings import Section, parse_yaml
from fne.evaluation.protocols import SCORED
from fne.store.catalog import Captioned

EXPERTS, CROWD, TABLE = "experts", "crowd", "table"
GRADES = (1, 4)  # the lowest and highest one of experts
# The grade from which a pair is acceptable; that of a table is the middle of its range.
ACCEPTABLE = {EXPERTS: 3.0, CROWD: 0.5}
COLUMNS = ("image", "caption", "grade")
PACKAGE, TRUTHS = "eccv-caption", ("eccv", "cxc")
NOWHERE = ""  # a right answer that is not among all answers
SHOWN = 10  # faults of a file
REMEDY = "fix or remove these lines"


class Judgments(Section):
    """The judged pairs, and which of them are acceptable."""

    file: str = Field("data/demo_judgments.txt", min_length=1, description="the file of judged pairs")
    acceptable: float = Field(
        0.0,
        ge=0,
        description="the grade from which a pair is acceptable; 0: 3 for experts, 0.5 for a crowd, the "
        "middle of its range for a table",
    )


@dataclass(frozen=True)
class Graded:
    """Pairs with their grades."""

    kind: str  # who judged: `EXPERTS`, `CROWD` or `TABLE`
    images: list[str]
    captions: list[str]
    grades: np.ndarray  # (pairs)
    judges: np.ndarray  # (pairs, judges): the grades of each judge; without columns if they are not known
    left_out: list[tuple[str, str, str]] = field(default_factory=list)  # image, caption and why

    def acceptable(self, given: float) -> float:
        """Return the grade from which a pair is acceptable; 0 is that of the kind."""
        middle = float(self.grades.min() + self.grades.max()) / 2
        return given or ACCEPTABLE.get(self.kind, middle)


@dataclass(frozen=True)
class RightSets:
    """The right captions of images, and the right images of captions, by id."""

    kind: str  # one of `TRUTHS`
    captions: dict[str, list[str]]
    images: dict[str, list[str]]
    left_out: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Pair:
    line: int
    image: str
    caption: str
    grades: tuple[float, ...]


def read_judgments(
    path: Path, captioned: Sequence[Captioned], scored: Sequence[Captioned]
) -> Graded | RightSets:
    """Read the judgments of the images that are `scored`, of all that are `captioned`."""
    content = read_bytes(path)
    if path.suffix in (".yaml", ".yml"):
        return _package(path, parse_yaml(content, str(path)), scored)
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    pairs, kind, faults = _table(path, lines) if _is_table(lines) else _flickr(lines)
    seen: dict[tuple[str, str], int] = {}
    for pair in pairs:
        first = seen.setdefault((pair.image, pair.caption), pair.line)
        if first != pair.line:
            faults.append(
                f"line {pair.line}: {pair.image}, {pair.caption} has a grade in line {first} already"
            )
    if faults:
        more = [f"… and {len(faults) - SHOWN} more"] * (len(faults) > SHOWN)
        raise LinesError(
            "\n".join([*(f"{path}: {each}" for each in faults[:SHOWN]), *more, f"{path}: {REMEDY}"])
        )
    if not pairs:
        raise InputError(f"{path}: no judged pairs; use the formats of docs/data.md")
    return _in_split(path, kind, pairs, captioned, scored)


def _is_table(lines: Sequence[str]) -> bool:
    return bool(lines) and {*COLUMNS} <= {each.strip().lower() for each in re.split(r"[,\t]", lines[0])}


def _table(path: Path, lines: Sequence[str]) -> tuple[list[_Pair], str, list[str]]:
    rows = csv.DictReader(lines, delimiter="\t" if "\t" in lines[0] else ",")
    rows.fieldnames = [each.strip().lower() for each in rows.fieldnames or []]
    pairs, faults = [], []
    for row in rows:
        values = [(row[name] or "").strip() for name in COLUMNS]
        grade = _number(values[2])
        if not math.isfinite(grade) or not values[0] or not values[1]:
            faults.append(
                f"line {rows.line_num}: {','.join(values)!r} is not an image, a caption and a number"
            )
        else:
            pairs.append(_Pair(rows.line_num, values[0], values[1], (grade,)))
    return pairs, TABLE, faults


def _flickr(lines: Sequence[str]) -> tuple[list[_Pair], str, list[str]]:
    """Read the lines of experts or of a crowd: only the latter begin with a fraction of their counts."""
    pairs, faults, kind = [], [], None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        image, caption, *rest = [each.strip() for each in line.split("\t")]
        values = tuple(map(_number, rest))
        kind = kind or (CROWD if _is_vote(values) else EXPERTS)
        if len(values) != 3 or "#" not in caption:
            expected = "image, x.jpg#0 and three numbers, separated by tabs"
            faults.append(f"line {number}: {line[:60]!r} is not {expected}")
        elif kind == CROWD and not _is_vote(values):
            faults.append(f"line {number}: {rest[0]} is not the fraction of {rest[1]} yes and {rest[2]} no")
        elif kind == EXPERTS and not all(
            each.is_integer() and GRADES[0] <= each <= GRADES[1] for each in values
        ):
            faults.append(f"line {number}: grades {' '.join(rest)} are not whole numbers from 1 to 4")
        else:
            pairs.append(_Pair(number, image, caption, values[:1] if kind == CROWD else values))
    return pairs, kind or EXPERTS, faults


def _is_vote(values: Sequence[float]) -> bool:
    if len(values) != 3 or not all(each >= 0 for each in values) or not values[1] + values[2]:
        return False
    return abs(values[0] - values[1] / (values[1] + values[2])) < 0.01  # some are rounded


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _in_split(
    path: Path, kind: str, pairs: Sequence[_Pair], captioned: Sequence[Captioned], scored: Sequence[Captioned]
) -> Graded:
    splits = {record.id: record.split for record in captioned}
    owners = {caption: record.id for record in captioned for caption in record.caption_ids}
    own = {record.id for record in scored}
    texts = {
        text: each
        for record in scored
        for text, each in zip(record.captions, record.caption_ids, strict=True)
    }
    used, left_out, known = [], [], []
    for pair in pairs:
        caption = pair.caption
        if kind == TABLE and caption not in owners:
            caption = texts.get(caption, caption)
        owner = owners.get(caption, "")
        if pair.image in own and owner in own:
            used.append((pair, caption))
            continue
        what, image = ("caption", owner) if pair.image in own else ("image", pair.image)
        place = f"in {splits[image]}" if image in splits else "not in the catalog"
        known.append(splits.get(pair.image))
        left_out.append((pair.image, pair.caption, f"{what} is {place}"))
    if not used:
        raise InputError(f"{path}: {_nowhere(len(pairs), Counter(filter(None, known)), scored)}")
    grades = np.array([pair.grades for pair, _ in used])
    mean = grades.mean(axis=1).round(9)  # equal sums of grades are equal
    judges = grades if kind == EXPERTS else grades[:, :0]
    return Graded(kind, [pair.image for pair, _ in used], [each for _, each in used], mean, judges, left_out)


def _nowhere(pairs: int, splits: Counter[str | None], scored: Sequence[Captioned]) -> str:
    none = f"none of its {pairs:,} pairs is in split '{scored[0].split}', which is scored"
    other = next((split for split, _ in splits.most_common() if split != scored[0].split), None)
    if other in SCORED:
        return f"{none}; {splits[other]:,} are in '{other}'; set evaluate.split to {other}"
    return f"{none}; its images and captions must be those of the data set"


def _package(path: Path, named: Mapping[str, Any], scored: Sequence[Captioned]) -> RightSets:
    if (
        set(named) != {"package", "version", "truth"}
        or named["package"] != PACKAGE
        or named["truth"] not in TRUTHS
    ):
        raise InputError(
            f"{path}: expected `package: {PACKAGE}`, its `version`, and `truth`: {' or '.join(TRUTHS)}"
        )
    try:
        installed = version(PACKAGE)
    except PackageNotFoundError:
        raise InputError(f"{path}: needs {PACKAGE}; run `pip install -e '.[judgments]'`") from None
    if installed != str(named["version"]):
        raise InputError(f"{path}: needs {PACKAGE} {named['version']}, {installed} is installed")
    spec = find_spec(PACKAGE.replace("-", "_"))  # not imported: only its data is used
    assert spec is not None
    assert spec.origin is not None
    data, truth = Path(spec.origin).parent / "data", named["truth"]
    numbers = {int(found[1]): record for record in scored if (found := re.search(r"(\d+)\.\w+$", record.id))}
    captions: dict[int, str] = {}
    owned = _numbers(data / "original_image_to_caption.json")  # five captions of each image
    for image, own in owned.items():
        if image in numbers:  # Karpathy's file has the captions in the order of COCO's numbers
            captions |= dict(zip(sorted(own), numbers[image].caption_ids, strict=False))
    listed = {*owned, *(caption for own in owned.values() for caption in own)}
    images = {number: record.id for number, record in numbers.items()}
    left_out: list[tuple[str, str, str]] = []
    right = [
        _known(_numbers(data / f"{truth}_{name}.json"), queries, answers, listed, left_out)
        for name, queries, answers in (
            ("image_to_caption", images, captions),
            ("caption_to_image", captions, images),
        )
    ]
    if not right[0] or not right[1]:
        raise InputError(
            f"{path}: no image of split '{scored[0].split}' is one of COCO's 5,000 test images, which "
            f"{PACKAGE} judges; use Karpathy's dataset_coco.json"
        )
    return RightSets(truth, right[0], right[1], left_out)


def _numbers(path: Path) -> dict[int, list[int]]:
    found = json.loads(read_bytes(path))
    return {int(query): [int(each) for each in answers] for query, answers in found.items()}


def _known(
    truth: Mapping[int, Sequence[int]],
    queries: Mapping[int, str],
    answers: Mapping[int, str],
    listed: Container[int],
    left_out: list[tuple[str, str, str]],
) -> dict[str, list[str]]:
    """Return the right answers of each query that is scored; others are left out.

    An answer that is not among those that can be found at all, a sixth caption, is counted as `NOWHERE`.
    """
    found: dict[str, list[str]] = {}
    for query, right in truth.items():
        if query not in queries:
            left_out.append((str(query), "", "not in the scored split"))
            continue
        own = []
        for each in dict.fromkeys(right):
            if each in answers or each not in listed:
                own.append(answers.get(each, NOWHERE))
            else:
                left_out.append((queries[query], str(each), "not in the scored split"))
        if {*own} - {NOWHERE}:
            found[queries[query]] = own
    return found
