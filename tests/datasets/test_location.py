import pytest

from fne.core.errors import InputError
from fne.datasets.location import FOLDERS, dataset_root, image_folder
from tests.datasets.samples import write_images


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_usual_folders_are_found(tmp_path, folder):
    write_images(tmp_path / folder, "a.jpg")
    assert (tmp_path / image_folder(tmp_path, "auto", ["a.jpg", "b.jpg"])).samefile(tmp_path / folder)


def test_the_folder_with_most_of_the_images_wins(tmp_path):
    write_images(tmp_path, "a.jpg")
    write_images(tmp_path / "images", "a.jpg", "b.jpg")
    assert image_folder(tmp_path, "auto", ["a.jpg", "b.jpg", "c.jpg"]) == "images"


def test_a_named_folder_is_taken(tmp_path):
    write_images(tmp_path / "deep/photos", "a.jpg")
    assert image_folder(tmp_path, "deep/photos", ["a.jpg"]) == "deep/photos"


def test_a_folder_outside_the_root_is_an_error(tmp_path):
    with pytest.raises(
        InputError, match=r"catalog.images: '../photos' points outside the image folder; name a folder"
    ):
        image_folder(tmp_path, "../photos", ["a.jpg"])


def test_images_that_are_nowhere_are_one_error_and_not_thousands_of_rejects(tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError) as caught:
        image_folder(tmp_path, "auto", ["a" * 300, "b.jpg"])
    assert caught.value.message == (
        f"{tmp_path}: none of the images is there, such as '{'a' * 300}'; looked in ., images; "
        "set catalog.images to their folder below the root, or to none if features come from elsewhere"
    )


@pytest.mark.parametrize(
    ("file", "name", "advice"),
    [
        ("photos/a.jpg", "a.jpg", "set catalog.images to 'photos'"),
        ("deep/photos/x/a.jpg", "x/a.jpg", "set catalog.images to 'deep/photos'"),
        (
            "A.JPG",
            "a.jpg",
            "'A.JPG' differs only in upper and lower case; rename the files, or change the names",
        ),
        (
            "images/caf\u00e9.jpg",
            "cafe\u0301.jpg",
            "'images/caf\u00e9.jpg' differs only in Unicode normalization; rename the files, or change the names",
        ),
        (
            "b/a.jpg",
            "c/a.jpg",
            "set catalog.images to their folder below the root, or to none if features come from elsewhere",
        ),
    ],
)
def test_images_that_are_elsewhere_or_spelled_otherwise_are_found_for_the_message(
    tmp_path, file, name, advice
):
    write_images(tmp_path, file)
    with pytest.raises(InputError) as caught:
        image_folder(tmp_path, "auto", [name])
    assert caught.value.message.startswith(
        f"{tmp_path}: none of the images is there, such as '{name}'; looked in ."
    )
    assert caught.value.message.endswith(f"; {advice}")


def test_images_beside_a_folder_named_by_mistake_are_found_for_the_message(tmp_path):
    write_images(tmp_path, "a.jpg")
    with pytest.raises(InputError, match=r"looked in no folder at all; set catalog.images to '\.'$"):
        image_folder(tmp_path, "photos", ["a.jpg"])


def test_a_root_that_is_missing_is_an_error_that_says_what_to_set(tmp_path):
    with pytest.raises(InputError) as caught:
        dataset_root(str(tmp_path / "missing"), "auto", "auto")
    assert caught.value.message == (
        f"catalog.root: '{tmp_path}/missing' does not exist; set it to the folder of your data set, or to its "
        "annotation file; inside the repository `dvc add` it first, anywhere else use an absolute path"
    )


def test_a_folder_keeps_its_annotations(tmp_path):
    assert dataset_root(str(tmp_path), "coco", "captions_*.json") == (tmp_path, "captions_*.json")


@pytest.mark.parametrize(
    "name", ["dataset_coco.json", "annotations/captions_val2017.json", "Flickr8k_text/Flickr8k.token.txt"]
)
def test_an_annotation_file_tells_the_folder(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert dataset_root(str(tmp_path / name), "auto", "auto") == (tmp_path, name)


@pytest.mark.parametrize(
    ("format_name", "annotations", "fault"),
    [
        ("auto", "b.csv", "and catalog.annotations names 'b.csv'; set catalog.annotations to auto"),
        (
            "folder",
            "auto",
            "and catalog.format 'folder' reads none; name the folder, or set the format to auto",
        ),
    ],
)
def test_an_annotation_file_and_something_else_are_refused(tmp_path, format_name, annotations, fault):
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError) as caught:
        dataset_root(str(tmp_path / "a.csv"), format_name, annotations)
    assert caught.value.message == f"catalog.root: '{tmp_path}/a.csv' is a file, {fault}"
