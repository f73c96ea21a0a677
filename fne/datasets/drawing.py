"""Pictures of the demo's scenes.

Everything is drawn `OVERSAMPLING` times too large and reduced at the end, which smooths the
edges. A shape is an outline inside the square from -1 to 1, tilted by a few degrees and
scaled when it is drawn.
"""

import math
from random import Random

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from fne.datasets.backgrounds import BLACK, PAINTERS, WHITE, Color, mix
from fne.datasets.scenes import Point, Scene, Thing

OVERSAMPLING = 3

PAINTS: dict[str, Color] = {
    "blue": (33, 92, 232),
    "green": (24, 160, 72),
    "orange": (255, 133, 20),
    "purple": (142, 45, 196),
    "red": (222, 38, 46),
    "white": (250, 250, 248),
    "yellow": (255, 214, 24),
}


def draw(scene: Scene, side: int, chance: Random) -> Image.Image:
    """Draw `scene` as a square picture; `chance` decides the grain of the background only."""
    canvas = PAINTERS[scene.background](side * OVERSAMPLING, chance)
    # The largest first: what is inside another thing lies upon it.
    for thing in sorted(scene.things, key=lambda thing: -thing.radius):
        _put(canvas, thing)
    return canvas.reduce(OVERSAMPLING)


def outline(thing: Thing) -> list[Point]:
    """Return the corners of `thing`, tilted and in place, as fractions of the picture's side."""
    cosine, sine = math.cos(math.radians(thing.tilt)), math.sin(math.radians(thing.tilt))
    return [
        (thing.x + thing.radius * (x * cosine - y * sine), thing.y + thing.radius * (x * sine + y * cosine))
        for x, y in OUTLINES[thing.shape]
    ]


def _put(canvas: Image.Image, thing: Thing) -> None:
    side = canvas.width
    half = round(side * (thing.radius + 0.06))  # room for the shadow
    left, top = round(side * thing.x) - half, round(side * thing.y) - half
    corners = [(side * x - left, side * y - top) for x, y in outline(thing)]
    tile = (2 * half, 2 * half)
    silhouette = Image.new("L", tile)
    ImageDraw.Draw(silhouette).polygon(corners, fill=255)

    shadow = ImageChops.offset(silhouette, side // 90, side // 60).filter(
        ImageFilter.GaussianBlur(side // 80)
    )
    canvas.paste(BLACK, (left, top), shadow.point([value * 2 // 5 for value in range(256)]))

    paint = PAINTS[thing.color]
    light, dark = (Image.new("RGB", tile, mix(paint, other, 0.14)) for other in (WHITE, BLACK))
    body = Image.composite(dark, light, Image.linear_gradient("L").resize(tile))
    ImageDraw.Draw(body).polygon(corners, outline=mix(paint, BLACK, 0.3), width=max(1, side // 130))
    canvas.paste(body, (left, top), silhouette)


def _around(count: int, radii: tuple[float, ...]) -> list[Point]:
    """Return points around the center, clockwise from the top, at `radii` in turn."""
    angles = [math.tau * step / count for step in range(count)]
    reaches = [radii[step % len(radii)] for step in range(count)]
    return [
        (reach * math.sin(angle), -reach * math.cos(angle))
        for angle, reach in zip(angles, reaches, strict=True)
    ]


def _heart(count: int) -> list[Point]:
    """Return points of the well-known curve x = 16 sin³ t, y = 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t."""
    outline = []
    for step in range(count):
        t = math.tau * step / count
        height = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        outline.append((0.92 * math.sin(t) ** 3, -0.06 * height - 0.12))
    return outline


OUTLINES: dict[str, list[Point]] = {
    "circle": _around(120, (0.95,)),
    "heart": _heart(120),
    "square": [(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)],
    "star": _around(10, (0.98, 0.48)),
    "triangle": [(0.0, -0.98), (0.9, 0.72), (-0.9, 0.72)],
}
