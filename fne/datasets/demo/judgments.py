"""Grades for pairs of an image and a sentence of the demo, as three experts would give them.

The exact grade is known: from 1 to 4, by the share of the facts of the sentence's own scene that are also
true of the image. Each judge rounds it, after an error that is drawn. The format is that of Flickr8k.
"""

from collections.abc import Sequence
from itertools import islice

from fne.datasets.demo.dataset import Render, filename, splits
from fne.datasets.demo.scenes import Scene, generator, scenes
from fne.datasets.demo.sentences import SENTENCES

JUDGED = "test"  # the split that is scored
JUDGES = 3
ERROR = 0.75  # the largest error of a judge
SIMILAR, OTHERS = 4, 5  # scenes per image: the most similar ones, and random others


def facts(scene: Scene) -> set[tuple[str, ...]]:
    """Return what is true of a scene: its things, their colors and shapes, where they are, and the place."""
    found: set[tuple[str, ...]] = {("place", scene.background), ("layout", scene.layout)}
    for thing in scene.things:
        found |= {(thing.color, thing.shape), ("color", thing.color), ("shape", thing.shape)}
    return found


def grade(image: Scene, sentence: Scene) -> float:
    """Return the exact grade of an image for a sentence of another scene; its own sentences have 4."""
    wanted = facts(sentence)
    return 1 + 3 * len(wanted & facts(image)) / len(wanted)


def judgments(settings: Render) -> str:
    """Return the grades of some pairs of the test images."""
    drawn, places = list(islice(scenes(settings.seed), settings.images)), splits(settings)
    lines = []
    own = [number for number, split in enumerate(places) if split == JUDGED]
    for number in own:
        rng = generator(settings.seed, number, "judgments")
        exact = {other: grade(drawn[number], drawn[other]) for other in own}
        ranked = sorted((other for other in own if other != number), key=lambda other: -exact[other])
        rest = ranked[SIMILAR:]
        for other in [number, *ranked[:SIMILAR], *rng.sample(rest, min(OTHERS, len(rest)))]:
            caption = f"{filename(other)}#{rng.randrange(SENTENCES)}"
            grades = [_rounded(exact[other] + rng.uniform(-ERROR, ERROR)) for _ in range(JUDGES)]
            lines.append(_line([filename(number), caption, *map(str, grades)]))
    return "".join(lines)


def _rounded(value: float) -> int:
    return min(4, max(1, int(value + 0.5)))


def _line(values: Sequence[str]) -> str:
    return "\t".join(values) + "\n"
