"""True sentences about a scene of the demo data set, from templates.

A template contains every thing of the scene as `{a}`, `{b}` and `{c}`, always with its color, in the order of
the layout (left to right, top to bottom, inner before outer), and its background as `{place}`.
"""

from random import Random

from fne.datasets.demo.scenes import Scene, Thing

SENTENCES = 5  # per image, as in Flickr8k
# The empty string omits the size; a medium size is never mentioned.
SIZE_WORDS = {
    "small": ("small", "small", "little", ""),
    "medium": ("",),
    "large": ("large", "large", "big", ""),
}

PLACES = {
    "beach": ("on the sand", "on a sandy beach", "on the beach"),
    "bricks": ("in front of a brick wall", "on a wall of bricks", "on the brick wall"),
    "checkers": ("on a checkered floor", "on checkered tiles", "on the checkered floor"),
    "grass": ("on the grass", "in a meadow", "on the green grass"),
    "night": ("in the night sky", "at night", "in the dark of the night"),
    "sea": ("on the water", "on the sea", "on the waves of the sea"),
    "sky": ("in the sky", "among the clouds", "in a cloudy sky"),
    "snow": ("in the snow", "on white snow", "on the snow"),
    "stripes": ("in front of a striped wall", "on striped wallpaper", "on the stripes"),
    "wood": ("on a wooden table", "on the wooden boards", "on wooden planks"),
}


def sentences(scene: Scene, rng: Random) -> list[str]:
    """Return five distinct true sentences about `scene`."""
    return [_fill(template, scene, rng) for template in rng.sample(TEMPLATES[scene.layout], SENTENCES)]


def _fill(template: str, scene: Scene, rng: Random) -> str:
    phrases = {name: _noun_phrase(thing, rng) for name, thing in zip("abc", scene.things, strict=False)}
    sentence = template.format(**phrases, place=rng.choice(PLACES[scene.background]))
    return f"{sentence[0].upper()}{sentence[1:]}."


def _noun_phrase(thing: Thing, rng: Random) -> str:
    size = rng.choice(SIZE_WORDS[thing.size])
    words = " ".join(word for word in (size, thing.color, thing.shape) if word)
    article = "an" if words[0] in "aeiou" else "a"
    return f"{article} {words}"


def _alone(where: str) -> tuple[str, ...]:
    return (
        "{a} {place}",
        "there is {a} {place}",
        "{place}, {a} is " + where,
        "a picture of {a} {place}",
        "only one shape {place}: {a}",
        "{a} is alone {place}",
        "{a} " + where + " of the picture",
    )


TEMPLATES = {
    "left": _alone("on the left"),
    "right": _alone("on the right"),
    "top": _alone("at the top"),
    "bottom": _alone("at the bottom"),
    "middle": _alone("in the middle"),
    "beside": (
        "{a} is to the left of {b} {place}",
        "{place}, {b} is to the right of {a}",
        "{a} and {b} are side by side {place}",
        "{b} next to {a} {place}",
        "{place} there is {a} on the left and {b} on the right",
        "two shapes {place}: {a} and {b}",
        "{a} has {b} to its right",
    ),
    "stacked": (
        "{a} is above {b} {place}",
        "{place}, {b} is below {a}",
        "{a} is over {b} {place}",
        "{b} is underneath {a} {place}",
        "{place} there is {a} at the top and {b} at the bottom",
        "two shapes {place}: {a} above {b}",
        "{b} with {a} above it",
    ),
    "inside": (
        "{a} is inside {b} {place}",
        "{place}, {b} has {a} inside it",
        "{b} with {a} in the middle {place}",
        "{place} there is {a} within {b}",
        "{b} surrounds {a} {place}",
        "two shapes {place}: {b} and {a} inside it",
        "{a} in {b}",
    ),
    "row": (
        "{a}, {b} and {c} in a row {place}",
        "{b} is between {a} and {c} {place}",
        "{place} there are three shapes: {a}, {b} and {c}",
        "{a} on the left, {b} in the middle and {c} on the right {place}",
        "{place}, {a} is to the left of {b} and {c} is to its right",
        "three shapes side by side {place}: {a}, {b} and {c}",
        "from left to right: {a}, {b} and {c}",
    ),
    "column": (
        "{a}, {b} and {c} in a column {place}",
        "{b} is between {a} and {c} {place}",
        "{place} there are three shapes: {a}, {b} and {c}",
        "{a} at the top, {b} in the middle and {c} at the bottom {place}",
        "{place}, {a} is above {b} and {c} is below it",
        "three shapes one above the other {place}: {a}, {b} and {c}",
        "from top to bottom: {a}, {b} and {c}",
    ),
}
