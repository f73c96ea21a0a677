import shutil
import subprocess

import pytest

from fne.datasets.location import FOLDERS, dataset_root, image_folder, warn_if_untracked
from tests.support.datasets import write_images
from tests.support.refusals import refused

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_usual_folders_are_found(tmp_path, folder):
    write_images(tmp_path / folder, "a.jpg")
    assert (tmp_path / image_folder(tmp_path, "auto", ["a.jpg", "b.jpg"])).samefile(tmp_path / folder)


def test_the_folder_with_most_of_the_images_is_used_or_the_given_one(tmp_path):
    write_images(tmp_path, "a.jpg")
    write_images(tmp_path / "images", "a.jpg", "b.jpg")
    assert image_folder(tmp_path, "auto", ["a.jpg", "b.jpg", "c.jpg"]) == "images"
    assert image_folder(tmp_path, ".", ["a.jpg", "b.jpg", "c.jpg"]) == "."


def test_a_folder_outside_the_root_is_an_error(tmp_path):
    with refused("catalog.images: '../photos' points outside the image folder; use a folder"):
        image_folder(tmp_path, "../photos", ["a.jpg"])


@pytest.mark.parametrize(
    ("file", "name", "advice"),
    [
        ("a.jpg", "a.jpg", "looked in no existing folder; set catalog.images to '.'"),
        ("photos/a.jpg", "a.jpg", "looked in .; set catalog.images to 'photos'"),
        ("deep/photos/x/a.jpg", "x/a.jpg", "looked in .; set catalog.images to 'deep/photos'"),
        ("A.JPG", "a.jpg", "'A.JPG' differs only in upper and lower case; rename the files"),
        (
            "images/caf\u00e9.jpg",
            "cafe\u0301.jpg",
            "'images/caf\u00e9.jpg' differs only in Unicode normalization",
        ),
        ("b/a.jpg", "c/a.jpg", "looked in .; set catalog.images to their folder below the root, or to none"),
        ("images/b.jpg", "a" * 300, "looked in ., images; set catalog.images to their folder below the root"),
    ],
)
def test_the_message_names_the_folder_or_the_spelling_of_images_found_below_the_root(
    tmp_path, file, name, advice
):
    write_images(tmp_path, file)
    with refused(f"{tmp_path}: none of the images was found, for example '{name}'; ", advice):
        image_folder(tmp_path, "nowhere" if file == name else "auto", [name])


def test_a_missing_root_is_an_error_with_a_remedy(tmp_path):
    with refused(f"catalog.root: '{tmp_path}/missing': no such file", "run `dvc add` first"):
        dataset_root(str(tmp_path / "missing"), "auto", "auto")


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
        ("folder", "auto", "but catalog.format is 'folder'; set root to the folder, or format to auto"),
    ],
)
def test_settings_that_contradict_an_annotation_file_are_refused(tmp_path, format_name, annotations, fault):
    (tmp_path / "a.csv").touch()
    with refused(f"catalog.root: '{tmp_path}/a.csv' is a file, {fault}"):
        dataset_root(str(tmp_path / "a.csv"), format_name, annotations)


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


def test_an_untracked_folder_gives_a_warning_also_if_only_its_annotation_file_is_tracked(repository, capsys):
    folder = repository / "data/mine"
    warned = warning(folder, capsys)
    assert warned.startswith(f"Warning: catalog.root: {folder} is tracked neither by Git nor by DVC")
    assert warned.endswith(f"run `dvc add {folder}`, or use a folder outside the repository\n")
    (folder / "é.json").touch()
    subprocess.run(["git", "add", "data/mine/é.json"], check=True)
    assert warning(folder / "é.json", capsys) == warned
    subprocess.run(["git", "add", "data/mine/a.jpg"], check=True)
    assert warning(folder / "é.json", capsys) == ""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("data/mine.dvc", ""),
        ("data.dvc", ""),
        ("dvc.yaml", "stages:\n  render:\n    cmd: x\n    outs:\n    - data/mine\n"),
        ("dvc.yaml", "stages:\n  render:\n    cmd: x\n    outs:\n    - {data/mine: {cache: false}}\n"),
        ("dvc.yaml", "stages:\n  render:\n    cmd: x\n    outs:\n    - data\n"),
    ],
)
def test_a_folder_added_to_dvc_and_the_output_of_a_stage_give_no_warning(repository, capsys, file, text):
    (repository / file).write_text(text)
    assert warning(repository / "data/mine", capsys) == ""


@pytest.mark.parametrize("text", ["stages: 7", "[]", "stages: {a: {}, b: 7}", "a: b: c"])
def test_a_malformed_dvc_file_is_ignored(repository, capsys, text):
    (repository / "dvc.yaml").write_text(text)
    assert warning(repository / "data/mine", capsys).startswith("Warning: ")


def test_outside_a_repository_and_without_git_there_is_no_warning(repository, tmp_path, capsys, monkeypatch):
    assert warning(tmp_path, capsys) == ""
    monkeypatch.setenv("PATH", "")
    assert warning(repository / "data/mine", capsys) == ""
