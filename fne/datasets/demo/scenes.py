"""The scenes of the demo data set, independent of their images and sentences.

A scene has one to three things, a layout and a background. Lengths and positions are fractions of the side of
the image, with x to the right and y downward. Every thing is inside the square of half-width `radius` around
its center. So if two squares do not touch, one thing is completely left of or above the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

SHAPES = ("circle", "heart", "square", "star", "triangle")
RADII = {"small": 0.1, "medium": 0.145, "large": 0.23}
FRAME_RADIUS = 0.4  # for a thing that contains another one
MARGIN = 0.02
GAP = 0.03
TILT = 6.0  # degrees to either side

COLORS = ("blue", "green", "orange", "purple", "red", "white", "yellow")
# The colors that are hard to see, per background.
BACKGROUNDS = {
    "beach": ("orange", "white", "yellow"),
    "bricks": ("orange", "red"),
    "checkers": ("white",),
    "grass": ("green",),
    "night": ("blue", "purple"),
    "sea": ("blue", "green"),
    "sky": ("blue", "white"),
    "snow": ("white",),
    "stripes": ("white",),
    "wood": ("orange", "red"),
}

# What users might write beside what is visible, and how often they name what is visible and what is not.
HABITS = ("2016", "art", "colors", "drawing", "fun", "geometry", "minimal", "poster")
NAMED, WRONG = 0.6, 0.05

Point = tuple[float, float]


@dataclass(frozen=True)
class Thing:
    """One shape of a scene, with its appearance and position."""

    size: str
    color: str
    shape: str
    x: float
    y: float
    radius: float
    tilt: float


@dataclass(frozen=True)
class Scene:
    """The content of one image; `things` are in the order of the layout."""

    background: str
    layout: str
    things: tuple[Thing, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Everything that sentences can mention: all but the exact positions."""
        looks = (part for thing in self.things for part in (thing.size, thing.color, thing.shape))
        return (self.background, self.layout, *looks)

    @property
    def tags(self) -> list[str]:
        """Sorted names of what is visible: the shapes, their colors and the background."""
        looks = (name for thing in self.things for name in (thing.color, thing.shape))
        return sorted({self.background, *looks})

    def user_tags(self, rng: Random) -> list[str]:
        """Return sorted noisy tags, as a user might give them: some of the tags, and others."""
        names = sorted({*SHAPES, *COLORS, *BACKGROUNDS, *HABITS})
        return [name for name in names if rng.random() < (NAMED if name in self.tags else WRONG)]


@dataclass(frozen=True)
class Layout:
    """A way to place things."""

    weight: int  # how often it occurs, relative to the others
    sizes: tuple[tuple[str, ...], ...]  # the possible sizes of each thing
    centers: Callable[[list[float], Random], list[Point]]  # from the radii of the things to their centers


def generator(seed: int, *purpose: str | int) -> Random:
    """Return a random generator for one purpose, independent of those for other purposes."""
    return Random("/".join(map(str, (seed, *purpose))))  # noqa: S311 - not used for cryptography


def scenes(seed: int) -> Iterator[Scene]:
    """Yield distinct scenes without end; the sequence depends on the seed only.

    Each round has every background once, so that a small data set has all of them.
    """
    seen = set()
    for turn in count():
        backgrounds = generator(seed, turn, "backgrounds").sample(list(BACKGROUNDS), len(BACKGROUNDS))
        for background in backgrounds:
            rng = generator(seed, turn, background)
            scene = _scene(background, rng)
            while scene.key in seen:
                scene = _scene(background, rng)
            seen.add(scene.key)
            yield scene


def _scene(background: str, rng: Random) -> Scene:
    [name] = rng.choices(list(LAYOUTS), [layout.weight for layout in LAYOUTS.values()])
    layout = LAYOUTS[name]
    sizes = [rng.choice(sizes) for sizes in layout.sizes]
    # Distinct colors, so that color and shape identify a thing.
    visible = [color for color in COLORS if color not in BACKGROUNDS[background]]
    colors = rng.sample(visible, len(sizes))
    radii = [FRAME_RADIUS if size == "frame" else RADII[size] for size in sizes]
    centers = layout.centers(radii, rng)
    things = tuple(
        Thing(
            size="large" if size == "frame" else size,
            color=color,
            shape=rng.choice(SHAPES),
            x=x,
            y=y,
            radius=radius,
            tilt=rng.uniform(-TILT, TILT),
        )
        for size, color, radius, (x, y) in zip(sizes, colors, radii, centers, strict=True)
    )
    return Scene(background, name, things)


def _alone(x: int, y: int) -> Callable[[list[float], Random], list[Point]]:
    """Return a function that places one thing at an edge (-1 or 1) or in the middle (0) of each axis."""

    def centers(radii: list[float], rng: Random) -> list[Point]:
        reach = 0.5 - radii[0] - 2 * MARGIN
        shift = rng.uniform(-MARGIN, MARGIN)
        return [(0.5 + x * reach + shift, 0.5 + y * reach + shift)]

    return centers


def _across(radii: list[float], rng: Random) -> list[Point]:
    """Place things from left to right, without touching."""
    spare = 1 - 2 * MARGIN - 2 * sum(radii) - GAP * (len(radii) - 1)
    parts = [rng.uniform(0.5, 1.0) for _ in range(len(radii) + 1)]
    level = rng.uniform(0.4, 0.6)
    centers = []
    edge = MARGIN
    for radius, part in zip(radii, parts, strict=False):
        edge += spare * part / sum(parts)
        centers.append((edge + radius, level + rng.uniform(-0.03, 0.03)))
        edge += 2 * radius + GAP
    return centers


def _down(radii: list[float], rng: Random) -> list[Point]:
    """Place things from top to bottom, without touching."""
    return [(y, x) for x, y in _across(radii, rng)]


def _inside(radii: list[float], rng: Random) -> list[Point]:
    """Place the first thing in the middle of the second one."""
    x, y = (rng.uniform(0.42, 0.58) for _ in range(2))
    return [(x, y)] * 2


_ANY = tuple(RADII)
_MODEST = ("small", "medium")

LAYOUTS = {
    "left": Layout(4, (_ANY,), _alone(-1, 0)),
    "right": Layout(4, (_ANY,), _alone(1, 0)),
    "top": Layout(4, (_ANY,), _alone(0, -1)),
    "bottom": Layout(4, (_ANY,), _alone(0, 1)),
    "middle": Layout(4, (("large",),), _alone(0, 0)),
    "beside": Layout(24, (_ANY, _ANY), _across),
    "stacked": Layout(24, (_ANY, _ANY), _down),
    "inside": Layout(12, (_MODEST, ("frame",)), _inside),
    "row": Layout(10, (_MODEST,) * 3, _across),
    "column": Layout(10, (_MODEST,) * 3, _down),
}
