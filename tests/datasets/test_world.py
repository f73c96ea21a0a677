import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from PIL import Image

from fne.datasets.backgrounds import PAINTERS
from fne.datasets.drawing import OUTLINES, PAINTS, draw, outline
from fne.datasets.scenes import BACKGROUNDS, COLORS, LAYOUTS, SHAPES, TILT, Scene, Thing, generator, scenes
from fne.datasets.world import Render, describe_world, write_world

DEFAULT = Render(seed=0, images=200, val_share=0.15, test_share=0.25, side=256)
SMALL = Render(seed=3, images=12, val_share=0.25, test_share=0.25, side=32)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def first_scenes(count: int) -> list[Scene]:
    return list(islice(scenes(seed=0), count))


def test_the_same_settings_give_the_same_bytes_and_another_seed_gives_others(tmp_path):
    for name, settings in {"a": SMALL, "b": SMALL, "c": SMALL.model_copy(update={"seed": 4})}.items():
        write_world(settings, tmp_path / name)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    a, c = files(tmp_path / "a"), files(tmp_path / "c")
    assert a.keys() == c.keys()
    assert all(a[name] != c[name] for name in a)


def test_a_larger_world_begins_with_the_pictures_and_sentences_of_a_smaller_one(tmp_path):
    write_world(SMALL.model_copy(update={"images": 8}), tmp_path / "eight")
    write_world(SMALL, tmp_path / "twelve")
    eight, twelve = files(tmp_path / "eight"), files(tmp_path / "twelve")
    texts = [
        [image["sentences"] for image in json.loads(world["dataset.json"])["images"][:8]]
        for world in (eight, twelve)
    ]
    assert texts[0] == texts[1]
    del eight["dataset.json"]
    assert len(eight) == 8
    assert eight.items() <= twelve.items()


def test_the_folder_holds_what_the_json_names_and_nothing_of_an_older_world(tmp_path):
    (tmp_path / "demo" / "images").mkdir(parents=True)
    (tmp_path / "demo" / "images" / "old.jpg").write_bytes(b"old")
    write_world(SMALL, tmp_path / "demo")
    named = [
        image["filename"] for image in json.loads((tmp_path / "demo" / "dataset.json").read_text())["images"]
    ]
    assert sorted(files(tmp_path / "demo")) == ["dataset.json", *(f"images/{name}" for name in named)]
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
    with Image.open(tmp_path / "demo" / "images" / named[0]) as picture:
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (32, 32))


def test_no_two_pictures_have_the_same_bytes(tmp_path):
    write_world(SMALL, tmp_path / "demo")
    contents = list(files(tmp_path / "demo" / "images").values())
    assert len(set(contents)) == len(contents)


def test_the_splits_have_their_shares():
    world = describe_world(DEFAULT)
    assert Counter(image["split"] for image in world["images"]) == {"train": 120, "val": 30, "test": 50}


def test_the_records_are_those_of_karpathys_format():
    image = describe_world(SMALL)["images"][2]
    assert sorted(image) == ["filename", "imgid", "sentences", "sentids", "split"]
    assert (image["imgid"], image["filename"], image["sentids"]) == (
        2,
        "scene-0002.jpg",
        [10, 11, 12, 13, 14],
    )
    for sentid, sentence in zip(image["sentids"], image["sentences"], strict=True):
        assert (sentence["imgid"], sentence["sentid"]) == (2, sentid)
        assert " ".join(sentence["tokens"]) == "".join(
            letter for letter in sentence["raw"].lower() if letter not in ".,:"
        )


def test_every_word_of_the_test_sentences_occurs_in_training():
    words: dict[str, set[str]] = {"train": set(), "val": set(), "test": set()}
    for image in describe_world(DEFAULT)["images"]:
        for sentence in image["sentences"]:
            words[image["split"]].update(sentence["tokens"])
    assert words["test"] - words["train"] == set()


def test_no_two_scenes_are_equal_and_every_part_of_the_world_occurs():
    seen = first_scenes(1000)
    assert len({scene.gist for scene in seen}) == 1000
    assert {scene.background for scene in seen[: len(BACKGROUNDS)]} == set(BACKGROUNDS)
    assert {scene.layout for scene in seen} == set(LAYOUTS)
    assert {thing.shape for scene in seen for thing in scene.things} == set(SHAPES)
    assert {thing.color for scene in seen for thing in scene.things} == set(COLORS)


def test_things_have_different_colors_that_stand_out_from_the_background():
    for scene in first_scenes(300):
        colors = {thing.color for thing in scene.things}
        assert len(colors) == len(scene.things)
        assert not colors & set(BACKGROUNDS[scene.background])


def test_every_thing_lies_inside_the_picture():
    corners = [point for scene in first_scenes(500) for thing in scene.things for point in outline(thing)]
    assert min(map(min, corners)) > 0
    assert max(map(max, corners)) < 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tilt", [-TILT, 0.0, TILT])
def test_an_outline_fills_the_square_that_relations_are_judged_by_and_stays_in_it(shape, tilt):
    points = outline(Thing("large", "red", shape, x=0.0, y=0.0, radius=1.0, tilt=tilt))
    reach = max(max(abs(x), abs(y)) for x, y in points)
    assert 0.85 < reach <= 1


def test_a_thing_inside_another_one_does_not_stick_out():
    nested = [scene.things for scene in first_scenes(2000) if scene.layout == "inside"]
    assert len({(inner.size, inner.shape, outer.shape) for inner, outer in nested}) == 2 * len(SHAPES) ** 2
    for inner, outer in nested:
        assert all(encloses(outline(outer), point) for point in outline(inner)), (inner, outer)


def encloses(polygon: list[tuple[float, float]], point: tuple[float, float]) -> bool:
    """Count how often a ray to the right crosses the polygon's edges."""
    x, y = point
    crossings = 0
    for (x0, y0), (x1, y1) in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        if (y0 > y) != (y1 > y) and x < x0 + (y - y0) * (x1 - x0) / (y1 - y0):
            crossings += 1
    return crossings % 2 == 1


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_a_thing_shows_its_color_before_every_background(background):
    for color in set(COLORS) - set(BACKGROUNDS[background]):
        thing = Thing("large", color, "square", x=0.5, y=0.5, radius=0.3, tilt=0.0)
        picture = draw(Scene(background, "middle", (thing,)), 32, generator(0, "test"))
        shown = picture.getpixel((16, 16))
        distances = {
            name: sum((a - b) ** 2 for a, b in zip(shown, PAINTS[name], strict=True)) for name in PAINTS
        }
        assert min(distances, key=distances.__getitem__) == color


def test_the_smaller_thing_is_drawn_upon_the_larger_one_whatever_their_order():
    inner = Thing("small", "red", "circle", x=0.5, y=0.5, radius=0.1, tilt=0.0)
    outer = Thing("large", "blue", "circle", x=0.5, y=0.5, radius=0.4, tilt=0.0)
    pictures = [
        draw(Scene("snow", "inside", order), 32, generator(0)) for order in ((inner, outer), (outer, inner))
    ]
    assert pictures[0].tobytes() == pictures[1].tobytes()
    red, _, blue = pictures[0].getpixel((16, 16))
    assert red > blue


def test_every_background_color_and_shape_can_be_drawn():
    assert PAINTERS.keys() == BACKGROUNDS.keys()
    assert PAINTS.keys() == set(COLORS)
    assert OUTLINES.keys() == set(SHAPES)
