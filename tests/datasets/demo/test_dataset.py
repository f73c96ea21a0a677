import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from PIL import Image

from fne.datasets.demo.dataset import Render, describe_dataset, write_dataset
from fne.datasets.demo.drawing import BACKGROUND_PAINTERS, OUTLINES, RGB, draw, outline
from fne.datasets.demo.scenes import (
    BACKGROUNDS,
    COLORS,
    LAYOUTS,
    SHAPES,
    TILT,
    Scene,
    Thing,
    generator,
    scenes,
)

DEFAULT = Render(seed=0, images=200, val_share=0.15, test_share=0.25, side=256)
SMALL = Render(seed=3, images=12, val_share=0.25, test_share=0.25, side=32)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def first_scenes(count: int) -> list[Scene]:
    return list(islice(scenes(seed=0), count))


def test_the_same_settings_give_the_same_bytes_and_another_seed_or_image_gives_others(tmp_path):
    for name, settings in {"a": SMALL, "b": SMALL, "c": SMALL.model_copy(update={"seed": 4})}.items():
        write_dataset(settings, tmp_path / name)
    a, b, c = (files(tmp_path / name) for name in "abc")
    assert a == b
    assert a.keys() == c.keys()
    assert all(a[name] != c[name] for name in a)
    assert len(set(a.values())) == len(a)


def test_a_larger_data_set_starts_with_the_images_and_sentences_of_a_smaller_one(tmp_path):
    write_dataset(SMALL.model_copy(update={"images": 8}), tmp_path / "eight")
    write_dataset(SMALL, tmp_path / "twelve")
    eight, twelve = files(tmp_path / "eight"), files(tmp_path / "twelve")
    texts = [
        [image["sentences"] for image in json.loads(dataset["dataset.json"])["images"][:8]]
        for dataset in (eight, twelve)
    ]
    assert texts[0] == texts[1]
    del eight["dataset.json"]
    assert len(eight) == 8
    assert eight.items() <= twelve.items()


def test_the_folder_contains_only_the_images_in_the_json(tmp_path):
    (tmp_path / "demo" / "images").mkdir(parents=True)
    (tmp_path / "demo" / "images" / "old.jpg").write_bytes(b"old")
    write_dataset(SMALL, tmp_path / "demo")
    named = [
        image["filename"] for image in json.loads((tmp_path / "demo" / "dataset.json").read_text())["images"]
    ]
    assert sorted(files(tmp_path / "demo")) == ["dataset.json", *(f"images/{name}" for name in named)]
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
    with Image.open(tmp_path / "demo" / "images" / named[0]) as picture:
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (32, 32))


def test_the_splits_have_their_fractions():
    dataset = describe_dataset(DEFAULT)
    assert Counter(image["split"] for image in dataset["images"]) == {"train": 120, "val": 30, "test": 50}


def test_the_records_are_those_of_karpathys_format():
    image = describe_dataset(SMALL)["images"][2]
    assert sorted(image) == ["filename", "imgid", "sentences", "sentids", "split", "tags", "user_tags"]
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
    for image in describe_dataset(DEFAULT)["images"]:
        for sentence in image["sentences"]:
            words[image["split"]].update(sentence["tokens"])
    assert words["test"] - words["train"] == set()


def test_no_two_scenes_are_equal_and_every_background_layout_shape_and_color_occurs():
    seen = first_scenes(1000)
    assert len({scene.key for scene in seen}) == 1000
    assert {scene.background for scene in seen[: len(BACKGROUNDS)]} == set(BACKGROUNDS)
    assert {scene.layout for scene in seen} == set(LAYOUTS)
    assert {thing.shape for scene in seen for thing in scene.things} == set(SHAPES)
    assert {thing.color for scene in seen for thing in scene.things} == set(COLORS)


def test_things_have_distinct_colors_that_are_visible_on_the_background():
    for scene in first_scenes(300):
        colors = {thing.color for thing in scene.things}
        assert len(colors) == len(scene.things)
        assert not colors & set(BACKGROUNDS[scene.background])


def test_every_thing_is_inside_the_image():
    corners = [point for scene in first_scenes(500) for thing in scene.things for point in outline(thing)]
    assert min(map(min, corners)) > 0
    assert max(map(max, corners)) < 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tilt", [-TILT, 0.0, TILT])
def test_an_outline_fills_its_square_and_stays_inside_it(shape, tilt):
    points = outline(Thing("large", "red", shape, x=0.0, y=0.0, radius=1.0, tilt=tilt))
    reach = max(max(abs(x), abs(y)) for x, y in points)
    assert 0.85 < reach <= 1


def test_a_thing_inside_another_one_is_completely_inside():
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
def test_a_thing_has_its_color_on_every_background(background):
    for color in set(COLORS) - set(BACKGROUNDS[background]):
        thing = Thing("large", color, "square", x=0.5, y=0.5, radius=0.3, tilt=0.0)
        picture = draw(Scene(background, "middle", (thing,)), 32, generator(0, "test"))
        shown = picture.getpixel((16, 16))
        distances = {name: sum((a - b) ** 2 for a, b in zip(shown, RGB[name], strict=True)) for name in RGB}
        assert min(distances, key=distances.__getitem__) == color


def test_the_smaller_thing_is_drawn_over_the_larger_one_in_any_order():
    inner = Thing("small", "red", "circle", x=0.5, y=0.5, radius=0.1, tilt=0.0)
    outer = Thing("large", "blue", "circle", x=0.5, y=0.5, radius=0.4, tilt=0.0)
    pictures = [
        draw(Scene("snow", "inside", order), 32, generator(0)) for order in ((inner, outer), (outer, inner))
    ]
    assert pictures[0].tobytes() == pictures[1].tobytes()
    red, _, blue = pictures[0].getpixel((16, 16))
    assert red > blue


def test_every_background_color_and_shape_can_be_drawn():
    assert BACKGROUND_PAINTERS.keys() == BACKGROUNDS.keys()
    assert RGB.keys() == set(COLORS)
    assert OUTLINES.keys() == set(SHAPES)


def test_the_tags_are_the_shapes_colors_and_background_of_the_scene():
    images = describe_dataset(DEFAULT)["images"]
    for image, scene in zip(images, first_scenes(len(images)), strict=True):
        things = {name for thing in scene.things for name in (thing.color, thing.shape)}
        assert image["tags"] == sorted({scene.background} | things)
    names = {tag for image in images for tag in image["tags"]}
    assert names == {*SHAPES, *COLORS, *BACKGROUNDS}
    assert len(names) == 22


def test_user_tags_name_more_than_half_of_what_is_visible_and_some_of_what_is_not():
    images = describe_dataset(DEFAULT)["images"]
    true = sum(len(image["tags"]) for image in images)
    named = sum(len({*image["tags"]} & {*image["user_tags"]}) for image in images)
    wrong = sum(len({*image["user_tags"]} - {*image["tags"]}) for image in images)
    assert 0.5 < named / true < 0.7
    assert 0.1 < wrong / (named + wrong) < 0.5
