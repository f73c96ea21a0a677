import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fne.core.settings import parse_section
from fne.datasets.examine_images import MISNAMED
from fne.datasets.read import (
    CAPTIONS_DROPPED,
    COMPOSED,
    DUPLICATES,
    ELSEWHERE,
    EMOJI,
    GALLERY_CAPTIONS,
    LONG_CAPTIONS,
    REPEATED,
    RESPACED,
    RESTVAL_DROPPED,
    TAGS_ONLY,
    VAL_DROPPED,
    WITHOUT_CAPTIONS,
    Catalog,
    UnusableCaptionError,
    clean,
    draw_splits,
    resolve_splits,
)
from fne.datasets.readers.base import Record
from fne.datasets.readers.flickr import UNLISTED
from tests.support.datasets import build, encoded, entry, picture, splits, write_images, write_karpathy
from tests.support.imports import ROOT
from tests.support.refusals import refused

IDS = [f"{number}.jpg" for number in range(50)]


def rejects(root, **options):
    return [(each.id, each.path, each.caption, each.reason) for each in build(root, **options).rejects]


def test_images_and_captions_are_joined_by_id(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train", "A dog .", "Snow"), entry("b.jpg", "test"))
    result = build(tmp_path)
    assert splits(result) == {"a.jpg": "train", "b.jpg": "test"}
    assert result.captioned[0].captions == ("A dog .", "Snow")
    image = result.images[0]
    assert (image.id, image.path, image.width, image.height) == ("a.jpg", "images/a.jpg", 12, 10)
    assert image.bytes == (tmp_path / "images/a.jpg").stat().st_size
    assert (result.rejects, +result.counts) == ([], {})


def test_all_faults_of_names_splits_and_captions_are_in_one_message(tmp_path):
    path = write_karpathy(
        tmp_path,
        entry("a/../../x.jpg"),
        entry("b.jpg"),
        entry(".//./b.jpg", "test"),
        entry("b.jpg") | {"filepath": "."},
        entry("c.jpg", "dev", "A dog", 7),
        images=False,
    )
    with refused(
        f"{path}: image 0 'a/../../x.jpg' points outside the image folder; "
        "image 2 'b.jpg' has the same name as image 1; image 3 'b.jpg' has the same name as image 1; "
        "image 4 'c.jpg' has an unknown split: 'dev' is not one of 'train', 'val', 'test', 'gallery', 'restval'; "
        "image 4 'c.jpg' has a caption 1 that is not a string: 7; fix or remove these entries"
    ):
        build(tmp_path)


@pytest.mark.parametrize(
    ("faulty", "fault"),
    [
        (entry("a\0.jpg"), "'a\\x00.jpg' contains a NUL character"),
        (entry("."), "'.' is not the name of a file"),
        (entry("a/."), "'a/.' is not the name of a file"),
        (entry("a/"), "'a/' is not the name of a file"),
        (entry("./"), "'' is empty"),
        (entry(".//../x.jpg"), "'../x.jpg' points outside the image folder"),
        (entry("//etc/x.jpg"), "'/etc/x.jpg' is an absolute path"),
        (entry("a.jpg", "train", True), "'a.jpg' has a caption 0 that is not a string: True"),
        (entry("a.jpg", "train", ["A dog"]), "'a.jpg' has a caption 0 that is not a string: ['A dog']"),
        (entry("a.jpg") | {"tags": ["\ud83d"]}, "'a.jpg' has a tag that is not valid Unicode: '\\ud83d'"),
    ],
)
def test_a_faulty_name_caption_or_tag_is_refused(tmp_path, faulty, fault):
    path = write_karpathy(tmp_path, faulty, images=False)
    with refused(f"{path}: image 0 {fault}; fix or remove these entries"):
        build(tmp_path)


def test_the_same_image_saved_again_without_loss_in_another_split_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("a.png", "train"), entry("b.bmp", "test"), images=False)
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.bmp"):
        picture(4).save(tmp_path / "images" / name)
    with refused(f"{tmp_path}: 'a.png' (train) and 'b.bmp' (test) are the same image; remove one of them"):
        build(tmp_path)


def test_a_photograph_of_flickr8k_and_of_flickr30k_in_two_splits_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("1000268201_693b08cb0e.jpg", "train"), entry("1000268201.jpg", "test"))
    pair = "'1000268201.jpg' (test) and '1000268201_693b08cb0e.jpg' (train)"
    with refused(
        f"{tmp_path}: {pair} are the same photograph", "one pair of 1", "put both in the same split"
    ):
        build(tmp_path)


def test_the_order_of_the_data_set_is_kept_as_positions(tmp_path):
    write_karpathy(
        tmp_path, entry("c.jpg"), entry("a.jpg", "test"), entry("b.jpg", "restval"), entry("d.jpg")
    )
    assert [(each.id, each.position) for each in build(tmp_path).captioned] == [
        ("c.jpg", 0),
        ("a.jpg", 1),
        ("d.jpg", 2),
    ]


def test_the_same_image_twice_in_one_split_or_in_the_gallery_is_counted(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg"), entry("c.jpg", "gallery") | {"sentences": []})
    for name in ("b.jpg", "c.jpg"):
        (tmp_path / "images" / name).write_bytes((tmp_path / "images/a.jpg").read_bytes())
    assert +build(tmp_path).counts == {DUPLICATES: 2, ELSEWHERE: 2}


def test_an_empty_train_split_is_refused_before_an_image_is_opened(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "val"), entry("b.jpg", "test"), images=False)
    with refused(f"{tmp_path}: no image with captions or tags is in the split 'train' (1 test, 1 val); add"):
        build(tmp_path)


def test_all_images_of_a_plain_folder_are_in_the_gallery(tmp_path):
    write_images(tmp_path, "a.jpg", "album/b.jpg")
    result = build(tmp_path)
    assert splits(result) == {"a.jpg": "gallery", "album/b.jpg": "gallery"}
    assert [image.path for image in result.images] == ["a.jpg", "album/b.jpg"]
    assert not +result.counts


def test_a_missing_image_is_rejected_with_its_captions(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg"))
    (tmp_path / "images/b.jpg").unlink()
    assert rejects(tmp_path) == [("b.jpg", "images/b.jpg", "", "no such file")]
    assert splits(build(tmp_path)) == {"a.jpg": "train"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"<html>", "not an image of a known format (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"),
        (encoded(picture(), "PNG")[:200], "damaged: "),
        (encoded(picture(width=1, height=1)), "1x1 pixels, a side below 8"),
    ],
)
def test_an_image_that_cannot_be_used_is_rejected_with_the_reason(tmp_path, data, reason):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg"))
    (tmp_path / "images/b.jpg").write_bytes(data)
    ((name, path, caption, found),) = rejects(tmp_path)
    assert (name, path, caption) == ("b.jpg", "images/b.jpg", "")
    assert found.startswith(reason)


def test_captions_that_cannot_be_used_are_rejected_without_their_image(tmp_path):
    captions = [None, "A dog", " ", "...", "\ud83d", "a" * 100_000, "b" * 100_001]
    write_karpathy(tmp_path, entry("a.jpg", "train", *captions))
    *short, long = rejects(tmp_path)
    assert short == [
        ("a.jpg", "images/a.jpg", "", "caption 0 is null"),
        ("a.jpg", "images/a.jpg", " ", "caption 2 is empty"),
        ("a.jpg", "images/a.jpg", "...", "caption 3 is punctuation only"),
        ("a.jpg", "images/a.jpg", "\ud83d", "caption 4 is not valid Unicode (a lone surrogate)"),
    ]
    assert long[3] == "caption 6 is too long: 100,001 characters, more than 100,000"
    assert long[2] == "b" * 100_000
    assert build(tmp_path).captioned[0].captions == ("A dog", "a" * 100_000)


def test_an_image_without_usable_captions_goes_to_the_gallery_unless_it_has_tags(tmp_path):
    tagged = {"sentences": [], "tags": ["dog"]}
    write_karpathy(
        tmp_path,
        entry("a.jpg") | tagged,
        entry("b.jpg", "val", "...") | {"tags": ["dog"]},
        entry("c.jpg", "test") | {"sentences": []},
        entry("d.jpg", "train", "..."),
        entry("e.jpg", "gallery") | tagged,
    )
    result = build(tmp_path)
    assert [*splits(result).values()] == ["train", "val", "gallery", "gallery", "gallery"]
    assert [record.tags for record in result.captioned] == [("dog",), ("dog",), (), (), ("dog",)]
    assert +result.counts == {TAGS_ONLY: 2, WITHOUT_CAPTIONS: 2}


def test_a_data_set_with_tags_and_without_captions_is_split_at_random(tmp_path):
    names = [f"{number}.jpg" for number in range(8)]
    write_images(tmp_path / "images", *names)
    rows = "".join(f"{name},dog,puppy;holiday\n" for name in names)
    (tmp_path / "table.csv").write_text(f"image,tags,user_tags\n{rows}")
    result = build(tmp_path)
    assert Counter(splits(result).values()) == {"train": 4, "val": 2, "test": 2}
    assert {record.user_tags for record in result.captioned} == {("holiday", "puppy")}


def test_captions_of_gallery_images_are_left_out_and_counted(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "gallery", "A cat", "A dog"))
    result = build(tmp_path)
    assert result.captioned[1].captions == ()
    assert +result.counts == {GALLERY_CAPTIONS: 2}


def test_unusual_captions_and_images_are_normalized_and_counted(tmp_path):
    long = "dog " * 300
    write_karpathy(tmp_path, entry("a.jpg", "train", "A\tdog", "A dog", "A 🐕", long), entry("b.jpg"))
    (tmp_path / "images/b.jpg").write_bytes(encoded(picture(9), "PNG"))
    result = build(tmp_path)
    assert result.captioned[0].captions == ("A dog", "A dog", "A 🐕", long.strip())
    assert +result.counts == {RESPACED: 1, REPEATED: 1, EMOJI: 1, LONG_CAPTIONS: 1, f"images {MISNAMED}": 1}


def test_dropped_restval_images_are_neither_opened_nor_rejected(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "restval", "..."))
    (tmp_path / "images/b.jpg").unlink()
    result = build(tmp_path)
    assert splits(result) == {"a.jpg": "train"}
    assert not result.rejects


def test_the_first_images_of_val_and_the_first_usable_captions_of_an_image_stay(tmp_path):
    names = ["c.jpg", "a.jpg", "b.jpg"]
    training = entry("t.jpg", "train", "One", "...", "Two", "Three")
    write_karpathy(tmp_path, training, *(entry(name, "val", f"A {name[0]}") for name in names))
    result = build(tmp_path, val_images=2, captions_per_image=2)
    assert splits(result) == {"t.jpg": "train", "c.jpg": "val", "a.jpg": "val"}
    assert result.captioned[0].captions == ("One", "Two")
    assert (result.counts[VAL_DROPPED], result.counts[CAPTIONS_DROPPED]) == (1, 1)


def test_equal_captions_of_different_images_are_counted(tmp_path):
    one, two = entry("a.jpg", "train", "A dog", "A dog", "One"), entry("b.jpg", "train", "A dog", "Two")
    write_karpathy(tmp_path, one, two)
    assert build(tmp_path).counts[ELSEWHERE] == 3


def test_images_in_no_split_list_are_left_out_and_counted(tmp_path):
    (tmp_path / "x.token.txt").write_text("a.jpg#0\tA dog\nb.jpg#0\tA cat\n")
    (tmp_path / "trainImages.txt").write_text("a.jpg\n")
    write_images(tmp_path, "a.jpg", "b.jpg")
    result = build(tmp_path)
    assert (splits(result), +result.counts) == ({"a.jpg": "train"}, {UNLISTED: 1})


def test_without_images_nothing_is_opened_and_all_captions_are_kept(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "test", "A cat", "..."), images=False)
    result = build(tmp_path, images="none")
    assert (result.images, splits(result)) == ([], {"a.jpg": "train", "b.jpg": "test"})
    assert [(each.path, each.caption) for each in result.rejects] == [("", "...")]


@pytest.mark.parametrize(
    ("images", "parts"),
    [
        ("none", ("catalog.images is none, and no image has a caption or tag", "auto")),
        ("auto", ("no image is left; images and captions rejected: 1, see the rejects file",)),
    ],
)
def test_nothing_that_can_be_used_is_an_error(tmp_path, images, parts):
    (tmp_path / "a.jpg").write_bytes(b"text")
    with refused(f"{tmp_path}: ", *parts):
        build(tmp_path, images=images)


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ([entry("a.jpg"), entry("b.jpg", "train", "..."), entry("c.jpg", "val")],
         ("is in the split 'train' (1 gallery, 1 val)", "rejected: 2, see the rejects file")),
        ([entry("a.jpg", "restval"), entry("b.jpg", "val")],
         ("is in the split 'train' (1 val)", "'restval' left out: 1, see catalog.restval")),
    ],
)  # fmt: skip
def test_an_empty_train_split_is_explained_by_its_rejects_or_what_restval_left_out(tmp_path, entries, parts):
    write_karpathy(tmp_path, *entries)
    (tmp_path / "images/a.jpg").unlink()
    with refused(*parts):
        build(tmp_path)


def test_links_to_images_are_followed(tmp_path):
    write_images(tmp_path / "cache", "object")
    write_karpathy(tmp_path / "data", entry("a.jpg"), images=False)
    (tmp_path / "data/images").mkdir()
    (tmp_path / "data/images/a.jpg").symlink_to(tmp_path / "cache/object")
    assert not build(tmp_path / "data").rejects


def splitting(**settings):
    return Catalog(**{"val_share": 0.1, "test_share": 0.2} | settings)


def record(name, split):
    return Record(name, split, ("A dog",), (), Path("table.csv"), "line 2")


def test_fractions_are_exact_and_only_the_seed_decides_what_is_drawn():
    drawn = draw_splits(IDS, splitting())
    assert Counter(drawn.values()) == {"train": 35, "val": 5, "test": 10}
    assert draw_splits(IDS[::-1], splitting()) == drawn
    assert draw_splits(IDS, splitting(seed=1)) != drawn
    held_out = [name for name, split in draw_splits(IDS[:10], splitting()).items() if split != "train"]
    assert sorted(held_out) == ["2.jpg", "8.jpg", "9.jpg"], "the draw never changes from version to version"


def test_restval_is_dropped_and_counted_or_added_to_train():
    records = [record("a", "train"), record("b", "restval")]
    splits, counts = resolve_splits(records, {"a", "b"}, splitting())
    assert (splits, counts) == ({"a": "train"}, {RESTVAL_DROPPED: 1})
    splits, counts = resolve_splits(records, {"a", "b"}, splitting(restval="train"))
    assert (splits, counts) == ({"a": "train", "b": "train"}, {})


def test_images_without_usable_captions_go_to_the_gallery_and_do_not_count_for_the_fractions():
    records = [record(name, None) for name in IDS]
    splits, _ = resolve_splits(records, set(IDS[:20]), splitting())
    assert Counter(splits.values()) == {"train": 14, "val": 2, "test": 4, "gallery": 30}


def test_training_images_are_held_out_for_a_data_set_without_test_images():
    records = [record(name, "train") for name in IDS] + [record("v.jpg", "val"), record("g.jpg", "train")]
    wanted = splitting(test_from_train=0.2)
    found, _ = resolve_splits(records, {*IDS, "v.jpg"}, wanted)
    assert Counter(found.values()) == {"train": 40, "test": 10, "val": 1, "gallery": 1}
    assert resolve_splits(records[::-1], {*IDS, "v.jpg"}, wanted)[0] == found
    unchanged, _ = resolve_splits(records, {*IDS, "v.jpg"}, splitting())
    assert Counter(unchanged.values()) == {"train": 50, "val": 1, "gallery": 1}


def test_test_images_are_not_held_out_twice_and_splits_for_some_images_only_are_an_error():
    with refused("params.yaml: catalog.test_from_train is 0.5, but 1 images have the split 'test'", "to 0"):
        records = [record("a", "train"), record("b", "test")]
        resolve_splits(records, {"a", "b"}, splitting(test_from_train=0.5))
    with refused(
        "table.csv: 1 of 2 images have no split (first 'b', line 2)", "every image a split, or none"
    ):
        resolve_splits([record("a", "train"), record("b", None)], {"a", "b"}, splitting())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "null"),
        ("", "empty"),
        (" \t\n\0\x7f", "empty"),
        ("?! $ — « »", "punctuation only"),
        ("a \ud83d dog", "not valid Unicode (a lone surrogate)"),
    ],
)
def test_a_caption_without_readable_text_is_refused(raw, reason):
    with pytest.raises(UnusableCaptionError) as caught:
        clean(raw)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("raw", "caption", "notes"),
    [
        ("A dog .", "A dog .", []),
        ("  A dog . ", "A dog .", []),
        ("A\tdog\r\n\0.", "A dog .", [RESPACED]),
        ("A  dog\u2028\u00a0.", "A dog .", [RESPACED]),
        ("Cafe\u0301", "Café", [COMPOSED]),
        ("🐕", "🐕", [EMOJI]),
        ("7", "7", []),
        ("一只狗", "一只狗", []),
        ("dog " * 300, ("dog " * 300).strip(), [LONG_CAPTIONS]),
    ],
)
def test_unusual_captions_are_normalized_and_noted(raw, caption, notes):
    assert clean(raw) == (caption, notes)


@given(st.text(st.characters(), max_size=30))
def test_a_clean_caption_is_normalized_and_cleaning_it_again_changes_nothing(raw):
    try:
        caption, _ = clean(raw)
    except UnusableCaptionError:
        return
    caption.encode()
    assert caption == " ".join(caption.split()) == unicodedata.normalize("NFC", caption)
    assert not any(unicodedata.category(character) == "Cc" for character in caption)
    assert clean(caption)[0] == caption


def section(**changes):
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())["catalog"]
    return parse_section({"catalog": shipped | changes}, "catalog", Catalog)


@pytest.mark.parametrize("root", ["data/demo/", "./data/demo", "data//demo"])
def test_different_spellings_of_the_root_are_the_same_folder(root):
    assert section(root=root)[0].root == "data/demo"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "voc"},
            "format: 'voc' is not one of 'auto', 'coco', 'flickr', 'folder', 'karpathy', 'table', ",
        ),
        ({"restval": "keep"}, "restval: 'keep' is not one of 'drop', 'train'"),
        ({"val_share": 1.0}, "val_share: input should be less than 1, got 1.0"),
        ({"test_share": -0.1}, "test_share: input should be greater than or equal to 0, got -0.1"),
        (
            {"val_share": 0.5, "test_share": 0.5},
            "val_share 0.5 and test_share 0.5 leave nothing for train; their ",
        ),
        ({"max_rejects": -1}, "max_rejects: input should be greater than or equal to 0, got -1"),
        ({"root": None}, "root: input should be a valid string, got None"),
    ],
)
def test_a_value_out_of_bounds_is_reported(changes, message):
    (fault,) = section(**changes)[1]
    assert fault.startswith(message)


def test_the_schema_is_loaded_without_torch():
    code = "import sys, fne.datasets.read; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
