"""The grounds of the demo's pictures: a painter for each, called as `painter(side, chance)`."""

import math
from random import Random

from PIL import Image, ImageDraw, ImageFilter

Color = tuple[int, int, int]

BLACK: Color = (0, 0, 0)
WHITE: Color = (255, 255, 255)


def mix(color: Color, other: Color, share: float) -> Color:
    """Return `color` with a share of another one."""
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(color, other, strict=True))
    return red, green, blue


def _gradient(side: int, top: Color, bottom: Color) -> Image.Image:
    above, below = (Image.new("RGB", (side, side), color) for color in (top, bottom))
    return Image.composite(below, above, Image.linear_gradient("L").resize((side, side)))


def _beach(side: int, chance: Random) -> Image.Image:
    canvas = _gradient(side, (250, 226, 170), (228, 190, 122))
    pen = ImageDraw.Draw(canvas)
    for step in range(7):
        level = side * (step + chance.uniform(0.2, 0.8)) / 7
        _wave(pen, side, chance, level, 0.012, 2, (214, 174, 108))
    _specks(pen, side, chance, 260, 0.004, ((200, 156, 92), (255, 240, 205), (176, 132, 84)))
    return canvas


def _bricks(side: int, chance: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side), (208, 190, 176))
    pen = ImageDraw.Draw(canvas)
    width, height, joint = side / 4, side / 8, side / 90
    for row in range(8):
        for column in range(-1, 5):
            left, top = (column + 0.5 * (row % 2)) * width, row * height
            brick = mix((164, 74, 52), (116, 48, 40), chance.random())
            pen.rounded_rectangle(
                (left + joint, top + joint, left + width - joint, top + height - joint), joint, fill=brick
            )
    return canvas


def _checkers(side: int, chance: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side))
    pen = ImageDraw.Draw(canvas)
    tile = side / 6
    for row in range(6):
        for column in range(6):
            pure = (52, 54, 62) if (row + column) % 2 else (232, 232, 228)
            tone = mix(pure, (128, 128, 128), chance.uniform(0, 0.12))
            pen.rectangle((column * tile, row * tile, (column + 1) * tile, (row + 1) * tile), fill=tone)
    return canvas


def _grass(side: int, chance: Random) -> Image.Image:
    canvas = _gradient(side, (118, 190, 72), (70, 146, 50))
    pen = ImageDraw.Draw(canvas)
    for _ in range(900):
        x, y = chance.uniform(0, side), chance.uniform(0, side * 1.05)
        tip = (x + chance.uniform(-0.015, 0.015) * side, y - chance.uniform(0.03, 0.06) * side)
        blade = mix((44, 118, 38), (160, 214, 92), chance.random())
        pen.polygon([(x - side / 250, y), tip, (x + side / 250, y)], fill=blade)
    return canvas


def _night(side: int, chance: Random) -> Image.Image:
    canvas = _gradient(side, (8, 10, 34), (30, 36, 84))
    pen = ImageDraw.Draw(canvas)
    _specks(pen, side, chance, 130, 0.003, ((255, 255, 255), (255, 244, 200), (170, 190, 255)))
    _specks(pen, side, chance, 25, 0.006, ((255, 255, 255), (255, 244, 200)))
    return canvas


def _sea(side: int, chance: Random) -> Image.Image:
    canvas = _gradient(side, (42, 142, 162), (6, 66, 102))
    pen = ImageDraw.Draw(canvas)
    for step in range(14):
        tone = mix((22, 104, 132), (150, 214, 220), chance.random())
        _wave(pen, side, chance, side * (step + 0.5) / 14, 0.012, 8, tone)
    return canvas


def _sky(side: int, chance: Random) -> Image.Image:
    canvas = _gradient(side, (70, 156, 236), (186, 224, 250))
    clouds = Image.new("L", canvas.size)
    pen = ImageDraw.Draw(clouds)
    for step in range(5):
        x, y = chance.uniform(0, side), side * (step + chance.random()) / 5
        for puff in range(-2, 3):
            radius = side * (0.07 - 0.016 * abs(puff)) * chance.uniform(0.8, 1.2)
            center = x + puff * side * 0.055
            pen.ellipse((center - radius, y - radius, center + radius, y + radius * 0.6), fill=225)
    canvas.paste(WHITE, mask=clouds.filter(ImageFilter.GaussianBlur(side // 120)))
    return canvas


def _snow(side: int, chance: Random) -> Image.Image:
    canvas = _gradient(side, (236, 243, 250), (250, 252, 255))
    pen = ImageDraw.Draw(canvas)
    for step in range(4):
        level = side * (step + chance.uniform(0.3, 0.9)) / 4
        drift = [(x, level + y) for x, y in _wave_points(side, chance, 0.03, 1.5)]
        pen.polygon(
            [*drift, (side, side), (0, side)], fill=mix((206, 220, 238), (246, 250, 254), (step + 1) / 4)
        )
    _specks(pen, side, chance, 160, 0.004, ((180, 202, 228), WHITE))
    return canvas


def _stripes(side: int, chance: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side), (250, 240, 226))
    pen = ImageDraw.Draw(canvas)
    width = side / 10
    start = chance.uniform(-2, 0) * width
    for stripe in range(7):
        left = start + 2 * stripe * width
        pen.rectangle((left, 0, left + width, side), fill=(94, 190, 186))
    return canvas


def _wood(side: int, chance: Random) -> Image.Image:
    canvas = Image.new("RGB", (side, side), (72, 42, 22))
    pen = ImageDraw.Draw(canvas)
    height = side / 5
    for board in range(5):
        top = board * height
        tone = mix((150, 98, 54), (122, 76, 40), chance.random())
        pen.rectangle((0, top + side / 200, side, top + height - side / 200), fill=tone)
        for _ in range(7):
            level = top + chance.uniform(0.12, 0.88) * height
            _wave(pen, side, chance, level, 0.006, 1.5, mix(tone, BLACK, chance.uniform(0.12, 0.3)))
    return canvas


def _wave(
    pen: ImageDraw.ImageDraw,
    side: int,
    chance: Random,
    level: float,
    height: float,
    count: float,
    color: Color,
) -> None:
    line = [(x, level + y) for x, y in _wave_points(side, chance, height, count)]
    pen.line(line, fill=color, width=side // 100, joint="curve")


def _wave_points(side: int, chance: Random, height: float, count: float) -> list[tuple[float, float]]:
    phase = chance.uniform(0, math.tau)
    return [
        (side * step / 80, side * height * math.sin(phase + count * math.tau * step / 80))
        for step in range(-1, 82)
    ]


def _specks(
    pen: ImageDraw.ImageDraw, side: int, chance: Random, count: int, radius: float, colors: tuple[Color, ...]
) -> None:
    for _ in range(count):
        x, y = chance.uniform(0, side), chance.uniform(0, side)
        reach = side * radius * chance.uniform(0.6, 1.2)
        pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=chance.choice(colors))


PAINTERS = {
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
