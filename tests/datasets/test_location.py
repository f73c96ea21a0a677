import shutil
import subprocess

import pytest

from fne.core.errors import InputError
from fne.datasets.location import FOLDERS, dataset_root, image_folder, warn_if_untracked
from tests.support.datasets import write_images

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_usual_folders_are_found(tmp_path, folder):
    write_images(tmp_path / folder, "a.jpg")
    assert (tmp_path / image_folder(tmp_path, "auto", ["a.jpg", "b.jpg"])).samefile(tmp_path / folder)


def test_the_folder_with_most_of_the_images_is_used(tmp_path):
    write_images(tmp_path, "a.jpg")
    write_images(tmp_path / "images", "a.jpg", "b.jpg")
    assert image_folder(tmp_path, "auto", ["a.jpg", "b.jpg", "c.jpg"]) == "images"


def test_a_given_folder_is_used(tmp_path):
    write_images(tmp_path / "deep/photos", "a.jpg")
    assert image_folder(tmp_path, "deep/photos", ["a.jpg"]) == "deep/photos"


def test_a_folder_outside_the_root_is_an_error(tmp_path):
    with pytest.raises(
        InputError, match=r"catalog.images: '../photos' points outside the image folder; use a folder"
    ):
        image_folder(tmp_path, "../photos", ["a.jpg"])


def test_if_no_image_is_found_it_is_one_error_and_not_thousands_of_rejects(tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError) as caught:
        image_folder(tmp_path, "auto", ["a" * 300, "b.jpg"])
    assert caught.value.message == (
        f"{tmp_path}: none of the images was found, for example '{'a' * 300}'; looked in ., images; "
        "set catalog.images to their folder below the root, or to none if the features are imported"
    )


@pytest.mark.parametrize(
    ("file", "name", "advice"),
    [
        ("photos/a.jpg", "a.jpg", "set catalog.images to 'photos'"),
        ("deep/photos/x/a.jpg", "x/a.jpg", "set catalog.images to 'deep/photos'"),
        (
            "A.JPG",
            "a.jpg",
            "'A.JPG' differs only in upper and lower case; rename the files, or fix the annotations",
        ),
        (
            "images/caf\u00e9.jpg",
            "cafe\u0301.jpg",
            "'images/caf\u00e9.jpg' differs only in Unicode normalization; rename the files, or fix the annotations",
        ),
        (
            "b/a.jpg",
            "c/a.jpg",
            "set catalog.images to their folder below the root, or to none if the features are imported",
        ),
    ],
)
def test_the_message_names_the_folder_or_the_spelling_of_images_found_below_the_root(
    tmp_path, file, name, advice
):
    write_images(tmp_path, file)
    with pytest.raises(InputError) as caught:
        image_folder(tmp_path, "auto", [name])
    assert caught.value.message.startswith(
        f"{tmp_path}: none of the images was found, for example '{name}'; looked in ."
    )
    assert caught.value.message.endswith(f"; {advice}")


def test_the_message_names_the_root_if_the_images_are_there(tmp_path):
    write_images(tmp_path, "a.jpg")
    with pytest.raises(InputError, match=r"looked in no existing folder; set catalog.images to '\.'$"):
        image_folder(tmp_path, "photos", ["a.jpg"])


def test_a_missing_root_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(InputError) as caught:
        dataset_root(str(tmp_path / "missing"), "auto", "auto")
    assert caught.value.message == (
        f"catalog.root: '{tmp_path}/missing': no such file or folder; set it to the folder of your data set, or to its "
        "annotation file; inside the repository run `dvc add` first, otherwise use an absolute path"
    )


def test_a_folder_is_returned_with_its_annotations(tmp_path):
    assert dataset_root(str(tmp_path), "coco", "captions_*.json") == (tmp_path, "captions_*.json")


@pytest.mark.parametrize(
    "name", ["dataset_coco.json", "annotations/captions_val2017.json", "Flickr8k_text/Flickr8k.token.txt"]
)
def test_the_folder_is_inferred_from_an_annotation_file(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert dataset_root(str(tmp_path / name), "auto", "auto") == (tmp_path, name)


@pytest.mark.parametrize(
    ("format_name", "annotations", "fault"),
    [
        ("auto", "b.csv", "but catalog.annotations is 'b.csv'; set catalog.annotations to auto"),
        (
            "folder",
            "auto",
            "but catalog.format is 'folder'; set root to the folder, or format to auto",
        ),
    ],
)
def test_settings_that_contradict_an_annotation_file_are_refused(tmp_path, format_name, annotations, fault):
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError) as caught:
        dataset_root(str(tmp_path / "a.csv"), format_name, annotations)
    assert caught.value.message == f"catalog.root: '{tmp_path}/a.csv' is a file, {fault}"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "repository"
    (folder / "data/mine").mkdir(parents=True)
    (folder / "data/mine/a.jpg").touch()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.chdir(folder)
    return folder


def warning(root, capsys):
    warn_if_untracked(root, root.parent if root.is_file() else root)
    return capsys.readouterr().err


def test_an_untracked_folder_in_the_repository_gives_a_warning(repository, capsys):
    assert warning(repository / "data/mine", capsys) == (
        f"Warning: catalog.root: {repository}/data/mine is tracked neither by Git nor by DVC, so "
        "`dvc exp run --temp` and `--queue` will not find it; "
        f"run `dvc add {repository}/data/mine`, or use a folder outside the repository\n"
    )


def test_a_folder_in_git_gives_no_warning(repository, capsys):
    subprocess.run(["git", "add", "data/mine/a.jpg"], check=True)
    assert warning(repository / "data/mine", capsys) == ""


def test_the_images_must_be_tracked_and_not_only_the_annotation_file(repository, capsys):
    (repository / "data/mine/é.json").touch()
    subprocess.run(["git", "add", "data/mine/é.json"], check=True)
    warned = warning(repository / "data/mine/é.json", capsys)
    assert warned.startswith(f"Warning: catalog.root: {repository}/data/mine is tracked neither by Git nor ")
    subprocess.run(["git", "add", "data/mine/a.jpg"], check=True)
    assert warning(repository / "data/mine/é.json", capsys) == ""


@pytest.mark.parametrize("added", ["data/mine.dvc", "data.dvc"])
def test_a_folder_added_to_dvc_gives_no_warning(repository, capsys, added):
    (repository / added).touch()
    assert warning(repository / "data/mine", capsys) == ""


@pytest.mark.parametrize("out", ["data/mine", "{data/mine: {cache: false}}", "data"])
def test_the_output_of_a_stage_gives_no_warning(repository, capsys, out):
    (repository / "dvc.yaml").write_text(f"stages:\n  render:\n    cmd: x\n    outs:\n    - {out}\n")
    assert warning(repository / "data/mine", capsys) == ""


@pytest.mark.parametrize("text", ["stages: 7", "[]", "stages: {a: {}, b: 7}", "a: b: c"])
def test_a_malformed_dvc_file_is_ignored(repository, capsys, text):
    (repository / "dvc.yaml").write_text(text)
    assert warning(repository / "data/mine", capsys).startswith("Warning: ")


def test_a_folder_outside_the_repository_gives_no_warning(repository, tmp_path, capsys):
    assert warning(tmp_path, capsys) == ""


def test_without_git_there_is_no_warning(repository, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert warning(repository / "data/mine", capsys) == ""
