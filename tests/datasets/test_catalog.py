import pytest

from fne.core.errors import InputError
from fne.datasets.captions import EMOJI, LENGTHY, MENDED, REPEATED
from fne.datasets.catalog import CAPTIONLESS, TWINS, UNWANTED
from fne.datasets.examine import MISNAMED
from fne.datasets.flickr import UNLISTED
from fne.datasets.splits import Splitting
from tests.datasets.samples import build, encoded, entry, picture, splits, write_images, write_karpathy


def fault(root, **options):
    with pytest.raises(InputError) as caught:
        build(root, **options)
    assert "\n" not in caught.value.message
    return caught.value.message


def rejects(root, **options):
    return [(each.id, each.path, each.caption, each.reason) for each in build(root, **options).rejects]


def test_images_and_captions_are_joined_by_id(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train", "A dog .", "Snow"), entry("b.jpg", "test"))
    built = build(tmp_path)
    assert splits(built) == {"a.jpg": "train", "b.jpg": "test"}
    assert built.captioned[0].captions == ("A dog .", "Snow")
    image = built.images[0]
    assert (image.id, image.path, image.width, image.height) == ("a.jpg", "images/a.jpg", 12, 10)
    assert image.bytes == (tmp_path / "images/a.jpg").stat().st_size
    assert not built.rejects
    assert not +built.counts


def test_names_outside_the_folder_duplicates_splits_and_captions_are_refused_in_one_message(tmp_path):
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
        "image 4 'c.jpg' has a caption 1 that is not a text but 7; fix or remove these entries"
    )


def test_a_nul_in_a_name_is_refused(tmp_path):
    path = write_karpathy(tmp_path, entry("a\0.jpg"), images=False)
    assert fault(tmp_path) == (
        f"{path}: image 0 'a\\x00.jpg' contains a NUL character; fix or remove these entries"
    )


@pytest.mark.parametrize("caption", [7, 1.5, True, ["A dog"], {"en": "A dog"}])
def test_a_caption_that_is_not_a_text_is_refused(tmp_path, caption):
    path = write_karpathy(tmp_path, entry("a.jpg", "train", caption), images=False)
    assert fault(tmp_path) == (
        f"{path}: image 0 'a.jpg' has a caption 0 that is not a text but {caption!r}; "
        "fix or remove these entries"
    )


def test_the_same_image_under_two_names_in_two_splits_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "train"), entry("b.jpg", "test"))
    (tmp_path / "images/b.jpg").write_bytes((tmp_path / "images/a.jpg").read_bytes())
    assert fault(tmp_path) == (
        f"{tmp_path}: 'a.jpg' (train) and 'b.jpg' (test) are the same image; "
        "an image has one split: remove one of them, or put both in the same"
    )


def test_the_same_image_saved_again_without_loss_in_another_split_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("a.png", "train"), entry("b.bmp", "test"), images=False)
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.bmp"):
        picture(4).save(tmp_path / "images" / name)
    assert fault(tmp_path) == (
        f"{tmp_path}: 'a.png' (train) and 'b.bmp' (test) are the same image; "
        "an image has one split: remove one of them, or put both in the same"
    )


def test_a_photograph_of_flickr8k_and_of_flickr30k_in_two_splits_is_refused(tmp_path):
    write_karpathy(tmp_path, entry("1000268201_693b08cb0e.jpg", "train"), entry("1000268201.jpg", "test"))
    assert fault(tmp_path) == (
        f"{tmp_path}: '1000268201.jpg' (test) and '1000268201_693b08cb0e.jpg' (train) are the same photograph of "
        "Flickr, one pair of 1; Flickr8k is part of Flickr30k: put both in the same split, or leave one out"
    )


def test_the_data_sets_own_order_is_kept_as_positions(tmp_path):
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
    assert +build(tmp_path).counts == {TWINS: 2}


def test_an_empty_train_split_is_refused_before_an_image_is_opened(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "val"), entry("b.jpg", "test"), images=False)
    assert fault(tmp_path) == (
        f"{tmp_path}: no image with captions is in the split 'train' (1 test, 1 val); add some"
    )


def test_a_plain_folder_is_all_gallery(tmp_path):
    write_images(tmp_path, "a.jpg", "album/b.jpg")
    built = build(tmp_path)
    assert splits(built) == {"a.jpg": "gallery", "album/b.jpg": "gallery"}
    assert [image.path for image in built.images] == ["a.jpg", "album/b.jpg"]
    assert not +built.counts


def test_a_missing_image_is_skipped_with_its_captions(tmp_path):
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
def test_an_image_that_cannot_be_used_is_skipped_with_the_reason(tmp_path, data, reason):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg"))
    (tmp_path / "images/b.jpg").write_bytes(data)
    ((name, path, caption, found),) = rejects(tmp_path)
    assert (name, path, caption) == ("b.jpg", "images/b.jpg", "")
    assert found.startswith(reason)


def test_a_caption_that_cannot_be_used_is_skipped_alone(tmp_path):
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
    built = build(tmp_path)
    assert splits(built) == {"a.jpg": "train", "b.jpg": "gallery", "c.jpg": "gallery"}
    assert +built.counts == {CAPTIONLESS: 2}


def test_captions_of_gallery_images_are_left_out_and_counted(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "gallery", "A cat", "A dog"))
    built = build(tmp_path)
    assert built.captioned[1].captions == ()
    assert +built.counts == {UNWANTED: 2}


def test_odd_captions_and_images_are_normalized_and_counted(tmp_path):
    long = "dog " * 300
    write_karpathy(tmp_path, entry("a.jpg", "train", "A\tdog", "A dog", "A 🐕", long), entry("b.jpg"))
    (tmp_path / "images/b.jpg").write_bytes(encoded(picture(9), "PNG"))
    built = build(tmp_path)
    assert built.captioned[0].captions == ("A dog", "A dog", "A 🐕", long.strip())
    assert +built.counts == {MENDED: 1, REPEATED: 1, EMOJI: 1, LENGTHY: 1, f"images {MISNAMED}": 1}


def test_dropped_restval_images_are_neither_opened_nor_judged(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "restval", "..."))
    (tmp_path / "images/b.jpg").unlink()
    built = build(tmp_path)
    assert splits(built) == {"a.jpg": "train"}
    assert not built.rejects


def test_restval_may_join_train(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "restval"))
    assert splits(build(tmp_path, splitting=Splitting("train", 0, 0, 0))) == {
        "a.jpg": "train",
        "b.jpg": "train",
    }


def test_images_in_no_split_list_are_left_out_and_counted(tmp_path):
    (tmp_path / "x.token.txt").write_text("a.jpg#0\tA dog\nb.jpg#0\tA cat\n")
    (tmp_path / "trainImages.txt").write_text("a.jpg\n")
    write_images(tmp_path, "a.jpg", "b.jpg")
    built = build(tmp_path)
    assert (splits(built), +built.counts) == ({"a.jpg": "train"}, {UNLISTED: 1})


def test_a_table_without_splits_is_split_by_the_shares(tmp_path):
    names = [f"{number}.jpg" for number in range(8)]
    write_images(tmp_path, *names)
    (tmp_path / "mine.csv").write_text("image,caption\n" + "".join(f"{name},A dog\n" for name in names))
    assert sorted(splits(build(tmp_path)).values()) == ["test"] * 2 + ["train"] * 4 + ["val"] * 2


def test_without_images_nothing_is_opened_and_all_captions_are_kept(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "test", "A cat", "..."), images=False)
    built = build(tmp_path, images="none")
    assert (built.images, splits(built)) == ([], {"a.jpg": "train", "b.jpg": "test"})
    assert [(each.path, each.caption) for each in built.rejects] == [("", "...")]


def test_neither_images_nor_captions_are_an_error(tmp_path):
    write_images(tmp_path, "a.jpg")
    assert fault(tmp_path, images="none") == (
        f"{tmp_path}: catalog.images is none, and no image has a caption; set it to auto"
    )


def test_when_everything_was_skipped_nothing_is_left(tmp_path):
    write_images(tmp_path, "a.jpg")
    (tmp_path / "a.jpg").write_bytes(b"text")
    assert fault(tmp_path) == (
        f"{tmp_path}: no image is left; images and captions rejected: 1, see the rejects file"
    )


def test_an_empty_train_split_is_explained_by_its_rejects(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg"), entry("b.jpg", "train", "..."), entry("c.jpg", "val"))
    (tmp_path / "images/a.jpg").unlink()
    assert fault(tmp_path) == (
        f"{tmp_path}: no image with captions is in the split 'train' (1 gallery, 1 val); "
        "images and captions rejected: 2, see the rejects file"
    )


def test_an_empty_train_split_is_explained_by_what_restval_left_out(tmp_path):
    write_karpathy(tmp_path, entry("a.jpg", "restval"), entry("b.jpg", "val"), images=False)
    assert fault(tmp_path) == (
        f"{tmp_path}: no image with captions is in the split 'train' (1 val); "
        "images of the split 'restval' left out: 1, see catalog.restval"
    )


def test_another_spelling_of_a_name_is_the_same_name(tmp_path):
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
        (".", "'.' names no file"),
        ("a/.", "'a/.' names no file"),
        ("a/", "'a/' names no file"),
        ("./", "'' is empty"),
        (".//../x.jpg", "'../x.jpg' points outside the image folder"),
        ("//etc/x.jpg", "'/etc/x.jpg' is an absolute path"),
    ],
)
def test_a_name_of_no_file_is_refused(tmp_path, name, message):
    path = write_karpathy(tmp_path, entry(name), images=False)
    assert fault(tmp_path) == f"{path}: image 0 {message}; fix or remove these entries"


def test_linked_images_are_followed_as_a_linked_dvc_cache_needs_it(tmp_path):
    write_images(tmp_path / "cache", "object")
    write_karpathy(tmp_path / "data", entry("a.jpg"), images=False)
    (tmp_path / "data/images").mkdir()
    (tmp_path / "data/images/a.jpg").symlink_to(tmp_path / "cache/object")
    assert not build(tmp_path / "data").rejects
