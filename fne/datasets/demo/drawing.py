"""The images of the demo's scenes.

An image is drawn `OVERSAMPLING` times larger and then reduced, which smooths the edges. Every entry of
`BACKGROUND_PAINTERS` is called as `paint(side, rng)` and returns a square image. Every entry of `OUTLINES` is
a polygon inside the square from -1 to 1, which is rotated by a few degrees and scaled when it is drawn.
"""

import math
from random import Random

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from fne.datasets.demo.scenes import Point, Scene, Thing

Color = tuple[int, int, int]

OVERSAMPLING = 3
BLACK: Color = (0, 0, 0)
WHITE: Color = (255, 255, 255)
RGB: dict[str, Color] = {
    "blue": (33, 92, 232),
    "green": (24, 160, 72),
    "orange": (255, 133, 20),
    "purple": (142, 45, 196),
    "red": (222, 38, 46),
    "white": (250, 250, 248),
    "yellow": (255, 214, 24),
}


def draw(scene: Scene, side: int, rng: Random) -> Image.Image:
    """Draw `scene` as a square image; `rng` affects only the details of the background."""
    canvas = BACKGROUND_PAINTERS[scene.background](side * OVERSAMPLING, rng)
    # The largest first, so that a thing inside another one is drawn over it.
    for thing in sorted(scene.things, key=lambda thing: -thing.radius):
        _put(canvas, thing)
    return canvas.reduce(OVERSAMPLING)


def outline(thing: Thing) -> list[Point]:
    """Return the polygon of `thing`, rotated and placed, as fractions of the side of the image."""
    cosine, sine = math.cos(math.radians(thing.tilt)), math.sin(math.radians(thing.tilt))
    return [
        (thing.x + thing.radius * (x * cosine - y * sine), thing.y + thing.radius * (x * sine + y * cosine))
        for x, y in OUTLINES[thing.shape]
    ]


def mix(color: Color, other: Color, fraction: float) -> Color:
    """Return the linear mix of two colors; `fraction` is that of `other`."""
    red, green, blue = (round(a + fraction * (b - a)) for a, b in zip(color, other, strict=True))
    return red, green, blue


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

    paint = RGB[thing.color]
    light, dark = (Image.new("RGB", tile, mix(paint, other, 0.14)) for other in (WHITE, BLACK))
    body = Image.composite(dark, light, Image.linear_gradient("L").resize(tile))
    ImageDraw.Draw(body).polygon(corners, outline=mix(paint, BLACK, 0.3), width=max(1, side // 130))
    canvas.paste(body, (left, top), silhouette)


def _around(count: int, radii: tuple[float, ...]) -> list[Point]:
    """Return points around the center, clockwise from the top, with `radii` repeated in order."""
    angles = [math.tau * step / count for step in range(count)]
    reaches = [radii[step % len(radii)] for step in range(count)]
    return [
        (reach * math.sin(angle), -reach * math.cos(angle))
        for angle, reach in zip(angles, reaches, strict=True)
    ]


def _heart(count: int) -> list[Point]:
    """Return points of the heart curve x = 16 sin³ t, y = 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t."""
    outline = []
    for step in range(count):
        t = math.tau * step / count
        height = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        outline.append((0.92 * math.sin(t) ** 3, -0.06 * height - 0.12))
    return outline


def _beach(side: int, rng: Random) -> Image.Image:
    canvas = _gradient(side, (250, 226, 170), (228, 190, 122))
    pen = ImageDraw.Draw(canvas)
    for step in range(7):
        level = side * (step + rng.uniform(0.2, 0.8)) / 7
        _wave(pen, side, rng, level, 0.012, 2, (214, 174, 108))
    _specks(pen, side, rng, 260, 0.004, ((200, 156, 92), (255, 240, 205), (176, 132, 84)))
    return canvas


def _bricks(side: int, rng: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side), (208, 190, 176))
    pen = ImageDraw.Draw(canvas)
    width, height, joint = side / 4, side / 8, side / 90
    for row in range(8):
        for column in range(-1, 5):
            left, top = (column + 0.5 * (row % 2)) * width, row * height
            brick = mix((164, 74, 52), (116, 48, 40), rng.random())
            pen.rounded_rectangle(
                (left + joint, top + joint, left + width - joint, top + height - joint), joint, fill=brick
            )
    return canvas


def _checkers(side: int, rng: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side))
    pen = ImageDraw.Draw(canvas)
    tile = side / 6
    for row in range(6):
        for column in range(6):
            pure = (52, 54, 62) if (row + column) % 2 else (232, 232, 228)
            tone = mix(pure, (128, 128, 128), rng.uniform(0, 0.12))
            pen.rectangle((column * tile, row * tile, (column + 1) * tile, (row + 1) * tile), fill=tone)
    return canvas


def _grass(side: int, rng: Random) -> Image.Image:
    canvas = _gradient(side, (118, 190, 72), (70, 146, 50))
    pen = ImageDraw.Draw(canvas)
    for _ in range(900):
        x, y = rng.uniform(0, side), rng.uniform(0, side * 1.05)
        tip = (x + rng.uniform(-0.015, 0.015) * side, y - rng.uniform(0.03, 0.06) * side)
        blade = mix((44, 118, 38), (160, 214, 92), rng.random())
        pen.polygon([(x - side / 250, y), tip, (x + side / 250, y)], fill=blade)
    return canvas


def _night(side: int, rng: Random) -> Image.Image:
    canvas = _gradient(side, (8, 10, 34), (30, 36, 84))
    pen = ImageDraw.Draw(canvas)
    _specks(pen, side, rng, 130, 0.003, ((255, 255, 255), (255, 244, 200), (170, 190, 255)))
    _specks(pen, side, rng, 25, 0.006, ((255, 255, 255), (255, 244, 200)))
    return canvas


def _sea(side: int, rng: Random) -> Image.Image:
    canvas = _gradient(side, (42, 142, 162), (6, 66, 102))
    pen = ImageDraw.Draw(canvas)
    for step in range(14):
        tone = mix((22, 104, 132), (150, 214, 220), rng.random())
        _wave(pen, side, rng, side * (step + 0.5) / 14, 0.012, 8, tone)
    return canvas


def _sky(side: int, rng: Random) -> Image.Image:
    canvas = _gradient(side, (70, 156, 236), (186, 224, 250))
    clouds = Image.new("L", canvas.size)
    pen = ImageDraw.Draw(clouds)
    for step in range(5):
        x, y = rng.uniform(0, side), side * (step + rng.random()) / 5
        for puff in range(-2, 3):
            radius = side * (0.07 - 0.016 * abs(puff)) * rng.uniform(0.8, 1.2)
            center = x + puff * side * 0.055
            pen.ellipse((center - radius, y - radius, center + radius, y + radius * 0.6), fill=225)
    canvas.paste(WHITE, mask=clouds.filter(ImageFilter.GaussianBlur(side // 120)))
    return canvas


def _snow(side: int, rng: Random) -> Image.Image:
    canvas = _gradient(side, (236, 243, 250), (250, 252, 255))
    pen = ImageDraw.Draw(canvas)
    for step in range(4):
        level = side * (step + rng.uniform(0.3, 0.9)) / 4
        drift = [(x, level + y) for x, y in _wave_points(side, rng, 0.03, 1.5)]
        pen.polygon(
            [*drift, (side, side), (0, side)], fill=mix((206, 220, 238), (246, 250, 254), (step + 1) / 4)
        )
    _specks(pen, side, rng, 160, 0.004, ((180, 202, 228), WHITE))
    return canvas


def _stripes(side: int, rng: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side), (250, 240, 226))
    pen = ImageDraw.Draw(canvas)
    width = side / 10
    start = rng.uniform(-2, 0) * width
    for stripe in range(7):
        left = start + 2 * stripe * width
        pen.rectangle((left, 0, left + width, side), fill=(94, 190, 186))
    return canvas


def _wood(side: int, rng: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side), (72, 42, 22))
    pen = ImageDraw.Draw(canvas)
    height = side / 5
    for board in range(5):
        top = board * height
        tone = mix((150, 98, 54), (122, 76, 40), rng.random())
        pen.rectangle((0, top + side / 200, side, top + height - side / 200), fill=tone)
        for _ in range(7):
            level = top + rng.uniform(0.12, 0.88) * height
            _wave(pen, side, rng, level, 0.006, 1.5, mix(tone, BLACK, rng.uniform(0.12, 0.3)))
    return canvas


def _gradient(side: int, top: Color, bottom: Color) -> Image.Image:
    above, below = (Image.new("RGB", (side, side), color) for color in (top, bottom))
    return Image.composite(below, above, Image.linear_gradient("L").resize((side, side)))


def _wave(
    pen: ImageDraw.ImageDraw,
    side: int,
    rng: Random,
    level: float,
    height: float,
    count: float,
    color: Color,
) -> None:
    line = [(x, level + y) for x, y in _wave_points(side, rng, height, count)]
    pen.line(line, fill=color, width=side // 100, joint="curve")


def _wave_points(side: int, rng: Random, height: float, count: float) -> list[tuple[float, float]]:
    phase = rng.uniform(0, math.tau)
    return [
        (side * step / 80, side * height * math.sin(phase + count * math.tau * step / 80))
        for step in range(-1, 82)
    ]


def _specks(
    pen: ImageDraw.ImageDraw, side: int, rng: Random, count: int, radius: float, colors: tuple[Color, ...]
) -> None:
    for _ in range(count):
        x, y = rng.uniform(0, side), rng.uniform(0, side)
        reach = side * radius * rng.uniform(0.6, 1.2)
        pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=rng.choice(colors))


BACKGROUND_PAINTERS = {
    "beach": _beach,
    "bricks": _bricks,
    "checkers": _checkers,
    "grass": _grass,
    "night": _night,
    "sea": _sea,
    "sky": _sky,
    "snow": _snow,
    "stripes": _stripes,
    "wood": _wood,
}

OUTLINES: dict[str, list[Point]] = {
    "circle": _around(120, (0.95,)),
    "heart": _heart(120),
    "square": [(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)],
    "star": _around(10, (0.98, 0.48)),
    "triangle": [(0.0, -0.98), (0.9, 0.72), (-0.9, 0.72)],
}
