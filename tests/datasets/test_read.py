import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.errors import InputError
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
    Splitting,
    UnusableCaptionError,
    clean,
    draw_splits,
    resolve_splits,
)
from fne.datasets.readers.base import Record
from fne.datasets.readers.flickr import UNLISTED
from fne.datasets.readers.table import COLUMNS
from tests.support.datasets import build, encoded, entry, picture, splits, write_images, write_karpathy

IDS = [f"{number}.jpg" for number in range(50)]
SECTION = {
    "root": "data/demo",
    "format": "auto",
    "annotations": "auto",
    "images": "auto",
    "restval": "drop",
    "val_share": 0.1,
    "test_share": 0.1,
    "test_from_train": 0.0,
    "seed": 0,
    "max_rejects": 0,
    "val_images": 0,
    "captions_per_image": 0,
    "columns": dict.fromkeys(COLUMNS, "auto"),
}


def fault(root, **options):
    with pytest.raises(InputError) as caught:
        build(root, **options)
    assert "\n" not in caught.value.message
    return caught.value.message


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
    assert not result.rejects
    assert not +result.counts


def test_all_faults_of_names_splits_and_captions_are_in_one_message(tmp_path):
    path = write_karpathy(
        tmp_path,
        entry("a/../../x.jpg"),
        entry("/etc/x.jpg"),
        entry("b.jpg"),
        entry("b.jpg", "test"),
        entry("c.jpg", "dev", "A dog", 7),
        images=False,
    )
    assert fault(tmp_path) == (
        f"{path}: image 0 'a/../../x.jpg' points outside the image folder; "
        "image 1 '/etc/x.jpg' is an absolute path; image 3 'b.jpg' has the same name as image 2; "
        "image 4 'c.jpg' has an unknown split: "
        "'dev' is not one of 'train', 'val', 'test', 'gallery', 'restval'; "
        "image 4 'c.jpg' has a caption 1 that is not a string: 7; fix or remove these entries"
    )


def test_a_nul_in_a_name_is_refused(tmp_path):
    path = write_karpathy(tmp_path, entry("a\0.jpg"), images=False)
    assert fault(tmp_path) == (
        f"{path}: image 0 'a\\x00.jpg' contains a NUL character; fix or remove these entries"
    )


@pytest.mark.parametrize("caption", [7, 1.5, True, ["A dog"], {"en": "A dog"}])
def test_a_caption_that_is_not_a_string_is_refused(tmp_path, caption):
    path = write_karpathy(tmp_path, entry("a.jpg", "train", caption), images=False)
    assert fault(tmp_path) == (
        f"{path}: image 0 'a.jpg' has a caption 0 that is not a string: {caption!r}; "
        "fix or remove these entries"
    )


def test_the_same_image_under_two_names_in_two_splits_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train"), entry("b.jpg", "test"))
    (tmp_path / "images/b.jpg").write_bytes((tmp_path / "images/a.jpg").read_bytes())
    assert fault(tmp_path) == (
        f"{tmp_path}: 'a.jpg' (train) and 'b.jpg' (test) are the same image; "
        "remove one of them, or put both in the same split"
    )


def test_the_same_image_saved_again_without_loss_in_another_split_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("a.png", "train"), entry("b.bmp", "test"), images=False)
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.bmp"):
        picture(4).save(tmp_path / "images" / name)
    assert fault(tmp_path) == (
        f"{tmp_path}: 'a.png' (train) and 'b.bmp' (test) are the same image; "
        "remove one of them, or put both in the same split"
    )


def test_a_photograph_of_flickr8k_and_of_flickr30k_in_two_splits_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("1000268201_693b08cb0e.jpg", "train"), entry("1000268201.jpg", "test"))
    assert fault(tmp_path) == (
        f"{tmp_path}: '1000268201.jpg' (test) and '1000268201_693b08cb0e.jpg' (train) are the same photograph of "
        "Flickr, one pair of 1; Flickr8k is part of Flickr30k: put both in the same split, or leave one out"
    )


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
    assert fault(tmp_path) == (
        f"{tmp_path}: no image with captions or tags is in the split 'train' (1 test, 1 val); add some"
    )


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


def test_a_caption_that_cannot_be_used_is_rejected_without_its_image(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train", None, "A dog", " ", "...", "\ud83d"))
    assert rejects(tmp_path) == [
        ("a.jpg", "images/a.jpg", "", "caption 0 is null"),
        ("a.jpg", "images/a.jpg", " ", "caption 2 is empty"),
        ("a.jpg", "images/a.jpg", "...", "caption 3 is punctuation only"),
        ("a.jpg", "images/a.jpg", "\ud83d", "caption 4 is not valid Unicode (a lone surrogate)"),
    ]
    assert build(tmp_path).captioned[0].captions == ("A dog",)


def test_an_image_without_usable_captions_goes_to_the_gallery(tmp_path):
    write_karpathy(
        tmp_path, entry("a.jpg"), entry("b.jpg", "train", "..."), entry("c.jpg") | {"sentences": []}
    )
    result = build(tmp_path)
    assert splits(result) == {"a.jpg": "train", "b.jpg": "gallery", "c.jpg": "gallery"}
    assert +result.counts == {WITHOUT_CAPTIONS: 2}


def test_an_image_with_tags_and_without_captions_keeps_its_split(tmp_path):
    tagged = {"sentences": [], "tags": ["dog"]}
    write_karpathy(
        tmp_path,
        entry("a.jpg") | tagged,
        entry("b.jpg", "val", "...") | {"tags": ["dog"]},
        entry("c.jpg", "test") | {"sentences": []},
        entry("d.jpg", "gallery") | tagged,
    )
    result = build(tmp_path)
    assert splits(result) == {"a.jpg": "train", "b.jpg": "val", "c.jpg": "gallery", "d.jpg": "gallery"}
    assert [record.tags for record in result.captioned] == [("dog",), ("dog",), (), ("dog",)]
    assert +result.counts == {TAGS_ONLY: 2, WITHOUT_CAPTIONS: 1}


def test_a_data_set_with_tags_and_without_captions_is_split_at_random(tmp_path):
    names = [f"{number}.jpg" for number in range(8)]
    write_images(tmp_path / "images", *names)
    rows = "".join(f"{name},dog,puppy;holiday\n" for name in names)
    (tmp_path / "table.csv").write_text(f"image,tags,user_tags\n{rows}")
    result = build(tmp_path)
    assert Counter(splits(result).values()) == {"train": 4, "val": 2, "test": 2}
    assert {record.user_tags for record in result.captioned} == {("holiday", "puppy")}


def test_a_tag_that_is_not_valid_unicode_is_refused(tmp_path):
    path = write_karpathy(tmp_path, entry("a.jpg") | {"tags": ["\ud83d"]})
    with pytest.raises(InputError) as caught:
        build(tmp_path)
    assert caught.value.message == (
        f"{path}: image 0 'a.jpg' has a tag that is not valid Unicode: '\\ud83d'; fix or remove these entries"
    )


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


def test_restval_can_be_added_to_train(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "restval"))
    assert splits(build(tmp_path, splitting=Splitting("train", 0, 0, 0))) == {
        "a.jpg": "train",
        "b.jpg": "train",
    }


def test_the_first_images_of_val_stay_in_the_order_of_the_data_set(tmp_path):
    names = ["c.jpg", "a.jpg", "b.jpg"]
    write_karpathy(tmp_path, entry("t.jpg"), *(entry(name, "val", f"A {name[0]}") for name in names))
    result = build(tmp_path, splitting=Splitting("drop", 0, 0, 0, val_images=2))
    assert splits(result) == {"t.jpg": "train", "c.jpg": "val", "a.jpg": "val"}
    assert result.counts[VAL_DROPPED] == 1


def test_the_first_usable_captions_of_an_image_stay(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train", "One", "...", "Two", "Three"))
    result = build(tmp_path, captions_per_image=2)
    assert result.captioned[0].captions == ("One", "Two")
    assert result.counts[CAPTIONS_DROPPED] == 1


def test_equal_captions_of_different_images_are_counted(tmp_path):
    write_karpathy(
        tmp_path, entry("a.jpg", "train", "A dog", "A dog", "One"), entry("b.jpg", "train", "A dog", "Two")
    )
    assert build(tmp_path).counts[ELSEWHERE] == 3


def test_images_in_no_split_list_are_left_out_and_counted(tmp_path):
    (tmp_path / "x.token.txt").write_text("a.jpg#0\tA dog\nb.jpg#0\tA cat\n")
    (tmp_path / "trainImages.txt").write_text("a.jpg\n")
    write_images(tmp_path, "a.jpg", "b.jpg")
    result = build(tmp_path)
    assert (splits(result), +result.counts) == ({"a.jpg": "train"}, {UNLISTED: 1})


def test_a_table_without_splits_is_split_by_the_fractions(tmp_path):
    names = [f"{number}.jpg" for number in range(8)]
    write_images(tmp_path, *names)
    (tmp_path / "mine.csv").write_text("image,caption\n" + "".join(f"{name},A dog\n" for name in names))
    assert sorted(splits(build(tmp_path)).values()) == ["test"] * 2 + ["train"] * 4 + ["val"] * 2


def test_without_images_nothing_is_opened_and_all_captions_are_kept(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "test", "A cat", "..."), images=False)
    result = build(tmp_path, images="none")
    assert (result.images, splits(result)) == ([], {"a.jpg": "train", "b.jpg": "test"})
    assert [(each.path, each.caption) for each in result.rejects] == [("", "...")]


def test_neither_images_nor_captions_are_an_error(tmp_path):
    write_images(tmp_path, "a.jpg")
    assert fault(tmp_path, images="none") == (
        f"{tmp_path}: catalog.images is none, and no image has a caption or tag; set it to auto"
    )


def test_it_is_an_error_if_everything_is_rejected(tmp_path):
    write_images(tmp_path, "a.jpg")
    (tmp_path / "a.jpg").write_bytes(b"text")
    assert fault(tmp_path) == (
        f"{tmp_path}: no image is left; images and captions rejected: 1, see the rejects file"
    )


def test_an_empty_train_split_is_explained_by_its_rejects(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "train", "..."), entry("c.jpg", "val"))
    (tmp_path / "images/a.jpg").unlink()
    assert fault(tmp_path) == (
        f"{tmp_path}: no image with captions or tags is in the split 'train' (1 gallery, 1 val); "
        "images and captions rejected: 2, see the rejects file"
    )


def test_an_empty_train_split_is_explained_by_what_restval_left_out(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "restval"), entry("b.jpg", "val"), images=False)
    assert fault(tmp_path) == (
        f"{tmp_path}: no image with captions or tags is in the split 'train' (1 val); "
        "images of the split 'restval' left out: 1, see catalog.restval"
    )


def test_different_spellings_of_a_path_are_the_same_name(tmp_path):
    path = write_karpathy(
        tmp_path, entry("a/b.jpg"), entry(".//a/./b.jpg"), entry("a//b.jpg") | {"filepath": "."}, images=False
    )
    assert fault(tmp_path) == (
        f"{path}: image 1 'a/b.jpg' has the same name as image 0; "
        "image 2 'a/b.jpg' has the same name as image 0; fix or remove these entries"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", "'.' is not the name of a file"),
        ("a/.", "'a/.' is not the name of a file"),
        ("a/", "'a/' is not the name of a file"),
        ("./", "'' is empty"),
        (".//../x.jpg", "'../x.jpg' points outside the image folder"),
        ("//etc/x.jpg", "'/etc/x.jpg' is an absolute path"),
    ],
)
def test_a_name_that_is_not_the_name_of_a_file_is_refused(tmp_path, name, message):
    path = write_karpathy(tmp_path, entry(name), images=False)
    assert fault(tmp_path) == f"{path}: image 0 {message}; fix or remove these entries"


def test_links_to_images_are_followed(tmp_path):
    write_images(tmp_path / "cache", "object")
    write_karpathy(tmp_path / "data", entry("a.jpg"), images=False)
    (tmp_path / "data/images").mkdir()
    (tmp_path / "data/images/a.jpg").symlink_to(tmp_path / "cache/object")
    assert not build(tmp_path / "data").rejects


def splitting(restval="drop", seed=0):
    return Splitting(restval, 0.1, 0.2, seed)


def record(name, split):
    return Record(name, split, ("A dog",), (), Path("table.csv"), "line 2")


def test_fractions_are_exact_and_the_order_of_the_data_set_does_not_matter():
    drawn = draw_splits(IDS, splitting())
    assert Counter(drawn.values()) == {"train": 35, "val": 5, "test": 10}
    assert draw_splits(IDS[::-1], splitting()) == drawn


def test_another_seed_draws_other_splits():
    assert draw_splits(IDS, splitting(seed=1)) != draw_splits(IDS, splitting(seed=0))


def test_the_draw_never_changes_from_version_to_version():
    drawn = draw_splits(IDS[:10], splitting())
    assert sorted(name for name, split in drawn.items() if split != "train") == ["2.jpg", "8.jpg", "9.jpg"]


def test_restval_is_dropped_and_counted_or_added_to_train():
    records = [record("a", "train"), record("b", "restval")]
    splits, counts = resolve_splits(records, {"a", "b"}, splitting("drop"))
    assert (splits, counts) == ({"a": "train"}, {RESTVAL_DROPPED: 1})
    splits, counts = resolve_splits(records, {"a", "b"}, splitting("train"))
    assert (splits, counts) == ({"a": "train", "b": "train"}, {})


def test_images_without_usable_captions_go_to_the_gallery_and_do_not_count_for_the_fractions():
    records = [record(name, None) for name in IDS]
    splits, _ = resolve_splits(records, set(IDS[:20]), splitting())
    assert Counter(splits.values()) == {"train": 14, "val": 2, "test": 4, "gallery": 30}


def test_training_images_are_held_out_for_a_data_set_without_test_images():
    records = [record(name, "train") for name in IDS] + [record("v.jpg", "val"), record("g.jpg", "train")]
    wanted = replace(splitting(), test_from_train=0.2)
    found, _ = resolve_splits(records, {*IDS, "v.jpg"}, wanted)
    assert Counter(found.values()) == {"train": 40, "test": 10, "val": 1, "gallery": 1}
    assert resolve_splits(records[::-1], {*IDS, "v.jpg"}, wanted)[0] == found
    unchanged, _ = resolve_splits(records, {*IDS, "v.jpg"}, splitting())
    assert Counter(unchanged.values()) == {"train": 50, "val": 1, "gallery": 1}


def test_test_images_are_not_held_out_twice():
    records = [record("a", "train"), record("b", "test")]
    with pytest.raises(InputError) as caught:
        resolve_splits(records, {"a", "b"}, replace(splitting(), test_from_train=0.5))
    assert caught.value.message == (
        "params.yaml: catalog.test_from_train is 0.5, but 1 images have the split 'test' already; set it to 0"
    )


def test_splits_for_some_images_only_are_an_error():
    with pytest.raises(InputError) as caught:
        resolve_splits([record("a", "train"), record("b", None)], {"a", "b"}, splitting())
    assert caught.value.message == (
        "table.csv: 1 of 2 images have no split (first 'b', line 2); give every image a split, or none"
    )


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "null"),
        ("", "empty"),
        (" \t\n", "empty"),
        ("\0\x7f", "empty"),
        ("...", "punctuation only"),
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


def faults(**changes):
    return parse_section({"catalog": SECTION | changes}, "catalog", Catalog)[1]


def test_the_section_as_shipped_is_valid():
    assert faults() == []


@pytest.mark.parametrize("root", ["data/demo/", "./data/demo", "data//demo"])
def test_different_spellings_of_the_root_are_the_same_folder(root):
    section, _ = parse_section({"catalog": SECTION | {"root": root}}, "catalog", Catalog)
    assert section is not None
    assert section.root == "data/demo"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "voc"},
            "format: 'voc' is not one of 'auto', 'coco', 'flickr', 'folder', 'karpathy', 'table', 'webdataset'",
        ),
        ({"restval": "keep"}, "restval: 'keep' is not one of 'drop', 'train'"),
        ({"val_share": 1.0}, "val_share: input should be less than 1, got 1.0"),
        ({"test_share": -0.1}, "test_share: input should be greater than or equal to 0, got -0.1"),
        (
            {"val_share": 0.5, "test_share": 0.5},
            "val_share 0.5 and test_share 0.5 leave nothing for train; their sum must be below 1",
        ),
        ({"max_rejects": -1}, "max_rejects: input should be greater than or equal to 0, got -1"),
        ({"root": None}, "root: input should be a valid string, got None"),
    ],
)
def test_a_value_out_of_bounds_is_reported(changes, message):
    assert faults(**changes) == [message]


def test_the_schema_is_loaded_without_torch():
    code = "import sys, fne.datasets.read; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_caption_of_more_than_the_limit_is_rejected_and_not_copied_whole(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train", "a" * 100_000, "b" * 100_001), entry("b.jpg"))
    result = build(tmp_path)
    assert [len(caption) for caption in result.captioned[0].captions] == [100_000]
    (reject,) = result.rejects
    assert reject.reason == "caption 1 is too long: 100,001 characters, more than 100,000"
    assert len(reject.caption) == 100_000
