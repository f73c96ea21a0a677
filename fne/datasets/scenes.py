"""The demo's world as a model: which scenes exist, before any is drawn or described.

A scene is one to three things in a layout before a background. Lengths and positions are
fractions of the picture's side, x to the right and y downwards. Every thing stays inside
the square of half-width `radius` around its center, so that two things whose squares do not
touch are truly left of or above each other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

SHAPES = ("circle", "heart", "square", "star", "triangle")
RADII = {"small": 0.1, "medium": 0.145, "large": 0.23}
FRAME_RADIUS = 0.4  # of a thing with another one inside it
MARGIN = 0.02
GAP = 0.03
TILT = 6.0  # degrees to either side

COLORS = ("blue", "green", "orange", "purple", "red", "white", "yellow")
# For each background, the colors a thing would be hard to see in.
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

Point = tuple[float, float]


@dataclass(frozen=True)
class Thing:
    """One shape of a scene: what it is and where it is."""

    size: str
    color: str
    shape: str
    x: float
    y: float
    radius: float
    tilt: float


@dataclass(frozen=True)
class Scene:
    """What one picture shows; `things` are in the order of the layout."""

    background: str
    layout: str
    things: tuple[Thing, ...]

    @property
    def gist(self) -> tuple[str, ...]:
        """What tells two scenes apart in words: all but the exact positions."""
        looks = (part for thing in self.things for part in (thing.size, thing.color, thing.shape))
        return (self.background, self.layout, *looks)


@dataclass(frozen=True)
class Layout:
    """A way to place things: how often it occurs, each thing's possible sizes, the centers for radii."""

    weight: int
    sizes: tuple[tuple[str, ...], ...]
    centers: Callable[[list[float], Random], list[Point]]


def generator(seed: int, *purpose: str | int) -> Random:
    """Return the generator for one purpose, so that no purpose disturbs the numbers of another."""
    return Random("/".join(map(str, (seed, *purpose))))  # noqa: S311 - nothing here is secret


def scenes(seed: int) -> Iterator[Scene]:
    """Yield scenes without end, no two of one gist; a longer world begins with the shorter one's scenes.

    The backgrounds take turns, each once before any comes again, so that a small world has them all.
    """
    seen = set()
    for turn in count():
        backgrounds = generator(seed, turn, "backgrounds").sample(list(BACKGROUNDS), len(BACKGROUNDS))
        for background in backgrounds:
            chance = generator(seed, turn, background)
            scene = _scene(background, chance)
            while scene.gist in seen:
                scene = _scene(background, chance)
            seen.add(scene.gist)
            yield scene


def _scene(background: str, chance: Random) -> Scene:
    [name] = chance.choices(list(LAYOUTS), [layout.weight for layout in LAYOUTS.values()])
    layout = LAYOUTS[name]
    sizes = [chance.choice(sizes) for sizes in layout.sizes]
    # Different colors, so that a color and a shape always name exactly one thing.
    visible = [color for color in COLORS if color not in BACKGROUNDS[background]]
    colors = chance.sample(visible, len(sizes))
    radii = [FRAME_RADIUS if size == "frame" else RADII[size] for size in sizes]
    centers = layout.centers(radii, chance)
    things = tuple(
        Thing(
            size="large" if size == "frame" else size,
            color=color,
            shape=chance.choice(SHAPES),
            x=x,
            y=y,
            radius=radius,
            tilt=chance.uniform(-TILT, TILT),
        )
        for size, color, radius, (x, y) in zip(sizes, colors, radii, centers, strict=True)
    )
    return Scene(background, name, things)


def _alone(x: int, y: int) -> Callable[[list[float], Random], list[Point]]:
    """Return a placement of one thing at an edge (-1 or 1) or in the middle (0) of each axis."""

    def centers(radii: list[float], chance: Random) -> list[Point]:
        reach = 0.5 - radii[0] - 2 * MARGIN
        shift = chance.uniform(-MARGIN, MARGIN)
        return [(0.5 + x * reach + shift, 0.5 + y * reach + shift)]

    return centers


def _across(radii: list[float], chance: Random) -> list[Point]:
    """Place things from left to right, without touching."""
    spare = 1 - 2 * MARGIN - 2 * sum(radii) - GAP * (len(radii) - 1)
    parts = [chance.uniform(0.5, 1.0) for _ in range(len(radii) + 1)]
    level = chance.uniform(0.4, 0.6)
    centers = []
    edge = MARGIN
    for radius, part in zip(radii, parts, strict=False):
        edge += spare * part / sum(parts)
        centers.append((edge + radius, level + chance.uniform(-0.03, 0.03)))
        edge += 2 * radius + GAP
    return centers


def _down(radii: list[float], chance: Random) -> list[Point]:
    """Place things from top to bottom, without touching."""
    return [(y, x) for x, y in _across(radii, chance)]


def _inside(radii: list[float], chance: Random) -> list[Point]:
    """Place the first thing in the middle of the second one."""
    x, y = (chance.uniform(0.42, 0.58) for _ in range(2))
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
