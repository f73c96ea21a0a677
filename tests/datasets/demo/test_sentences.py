"""Sentences are parsed and compared with the coordinates of the scene."""

import re
from collections.abc import Callable
from itertools import islice

import pytest

from fne.datasets.demo.scenes import (
    BACKGROUNDS,
    COLORS,
    LAYOUTS,
    RADII,
    SHAPES,
    Scene,
    Thing,
    generator,
    scenes,
)
from fne.datasets.demo.sentences import PLACES, SIZE_WORDS, TEMPLATES, sentences

NOUN_PHRASE = re.compile(
    rf"\b(an?) (?:(large|big|small|little) )?({'|'.join(COLORS)}) ({'|'.join(SHAPES)})\b", re.IGNORECASE
)
KEYWORDS = {
    "beach": "sand|beach",
    "bricks": "brick",
    "checkers": "checkered",
    "grass": "grass|meadow",
    "night": "night",
    "sea": "sea|water|wave",
    "sky": "(?<!night )sky|cloud",
    "snow": "snow",
    "stripes": "stripe",
    "wood": "wooden",
}


def left(a: Thing, b: Thing) -> bool:
    return a.x + a.radius < b.x - b.radius


def above(a: Thing, b: Thing) -> bool:
    return a.y + a.radius < b.y - b.radius


def level(*things: Thing) -> bool:
    return max(t.y for t in things) - min(t.y for t in things) < 0.1


def within(a: Thing, b: Thing) -> bool:
    return (
        a.radius < b.radius and abs(a.x - b.x) + a.radius < b.radius and abs(a.y - b.y) + a.radius < b.radius
    )


def in_line(a: Thing, b: Thing, c: Thing) -> bool:
    return (left(a, b) and left(b, c)) or (above(a, b) and above(b, c))


# What a sentence can claim, as a function of the things in the order in which it mentions them.
CLAIMS: dict[str, Callable[..., bool]] = {
    r"^[^#]*#0[^#]*$": lambda *things: len(things) == 1,
    r", #0 is on the left\.$|^#0 on the left of the picture": lambda a: a.x < 0.4,
    r", #0 is on the right\.$|^#0 on the right of the picture": lambda a: a.x > 0.6,
    r", #0 is at the top\.$|^#0 at the top of the picture": lambda a: a.y < 0.4,
    r", #0 is at the bottom\.$|^#0 at the bottom of the picture": lambda a: a.y > 0.6,
    r", #0 is in the middle\.$|^#0 in the middle of the picture": lambda a: (
        max(abs(a.x - 0.5), abs(a.y - 0.5)) < 0.1
    ),
    r"#0 is to the left of #1": lambda a, b, *_: left(a, b),
    r"#0 is to the right of #1": lambda a, b, *_: left(b, a),
    r"#1 and #2 is to its right": lambda a, b, c: left(b, c),
    r"#0 has #1 to its right": lambda a, b: left(a, b),
    r"#0 and #1 are side by side": lambda a, b: level(a, b) and (left(a, b) or left(b, a)),
    r"#0 next to #1": lambda a, b: level(a, b) and (left(a, b) or left(b, a)),
    r"#0 on the left and #1 on the right": lambda a, b: left(a, b),
    r"^two shapes .*: #0 and #1\.": lambda *t: len(t) == 2,
    r"#0 is above #1|#0 is over #1|: #0 above #1": lambda a, b, *_: above(a, b),
    r"#0 is below #1|#0 is underneath #1|^#0 with #1 above it": lambda a, b: above(b, a),
    r"#1 and #2 is below it": lambda a, b, c: above(b, c),
    r"#0 at the top and #1 at the bottom": lambda a, b: above(a, b),
    r"#0 is inside #1|#0 within #1|^#0 in #1": lambda a, b: within(a, b),
    r"#0 has #1 inside it|#0 with #1 in the middle|#0 surrounds #1|: #0 and #1 inside it": lambda a, b: (
        within(b, a)
    ),
    r"#0 is between #1 and #2": lambda a, b, c: in_line(b, a, c),
    r"there are three shapes: #0, #1 and #2": lambda *t: len(t) == 3,
    r"#0, #1 and #2 in a row": lambda a, b, c: left(a, b) and left(b, c) and level(a, b, c),
    r"#0 on the left, #1 in the middle and #2 on the right": lambda a, b, c: left(a, b) and left(b, c),
    r"^three shapes side by side .*: #0, #1 and #2|^from left to right: #0, #1 and #2": lambda a, b, c: (
        left(a, b) and left(b, c)
    ),
    r"#0, #1 and #2 in a column|^from top to bottom: #0, #1 and #2": lambda a, b, c: (
        above(a, b) and above(b, c)
    ),
    r"#0 at the top, #1 in the middle and #2 at the bottom": lambda a, b, c: above(a, b) and above(b, c),
    r"^three shapes one above the other .*: #0, #1 and #2": lambda a, b, c: above(a, b) and above(b, c),
}


@pytest.fixture(scope="module")
def described() -> list[tuple[Scene, list[str]]]:
    return [
        (scene, sentences(scene, generator(seed, number, "sentences")))
        for seed in (0, 1)
        for number, scene in enumerate(islice(scenes(seed), 300))
    ]


def mentioned(scene: Scene, sentence: str) -> list[Thing]:
    """Return the things of a sentence in its order, checking article, size, color and shape."""
    things = []
    for article, size, color, shape in NOUN_PHRASE.findall(sentence):
        [thing] = [thing for thing in scene.things if (thing.color, thing.shape) == (color, shape)]
        assert not size or thing.size == {"big": "large", "little": "small"}.get(size, size), sentence
        assert article.lower() == ("an" if (size or color)[0] in "aeiou" else "a"), sentence
        things.append(thing)
    return things


def test_each_scene_gets_five_different_sentences(described):
    assert {len(set(raws)) for _, raws in described} == {5}


def test_every_sentence_mentions_each_thing_once_and_nothing_else(described):
    for scene, raws in described:
        for raw in raws:
            assert sorted(mentioned(scene, raw), key=str) == sorted(scene.things, key=str), raw


def test_every_sentence_makes_a_known_claim_and_all_its_claims_are_true(described):
    used = set()
    for scene, raws in described:
        for raw in raws:
            numbers = iter(range(3))
            skeleton = NOUN_PHRASE.sub(lambda _, numbers=numbers: f"#{next(numbers)}", raw)
            skeleton = skeleton[0].lower() + skeleton[1:]
            claims = [claim for claim in CLAIMS if re.search(claim, skeleton)]
            assert claims, raw
            things = mentioned(scene, raw)
            assert all(CLAIMS[claim](*things) for claim in claims), (raw, claims)
            used.update(claims)
    assert used == set(CLAIMS)


def test_a_sentence_names_its_own_background_or_none(described):
    for scene, raws in described:
        named = [{name for name, words in KEYWORDS.items() if re.search(words, raw.lower())} for raw in raws]
        assert all(names <= {scene.background} for names in named), raws
        assert sum(map(bool, named)) >= 4, raws


def test_large_things_are_more_than_twice_as_wide_as_small_ones(described):
    things = [thing for scene, _ in described for thing in scene.things]
    widest_small = max(thing.radius for thing in things if thing.size == "small")
    narrowest_large = min(thing.radius for thing in things if thing.size == "large")
    assert narrowest_large > 2 * widest_small


def test_every_background_layout_and_size_has_words():
    assert PLACES.keys() == BACKGROUNDS.keys()
    assert TEMPLATES.keys() == LAYOUTS.keys()
    assert SIZE_WORDS.keys() == RADII.keys()


def test_a_sentence_starts_with_a_capital_and_ends_with_a_period(described):
    assert all(re.fullmatch(r"[A-Z][a-z ,:]+\.", raw) for _, raws in described for raw in raws)
