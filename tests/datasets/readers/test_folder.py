import contextlib
import os
import subprocess
from pathlib import Path

from fne.datasets.readers.folder import CONVERT, OTHERS, read_folder
from tests.support.refusals import refused


def test_images_in_subfolders_are_found_and_other_files_are_skipped(tmp_path):
    images = ["b.JPG", "a/c.png", "a/b/d.webp"]
    for name in [*images, "notes.txt", ".hidden.jpg", ".cache/e.jpg", "film.mp4", "__x/._f.jpg"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    reading = read_folder(tmp_path, [])
    assert reading.counts == {f"{OTHERS} ('film.mp4', 'notes.txt')": 2}
    assert [record.id for record in reading.records] == ["a/b/d.webp", "a/c.png", "b.JPG"]
    assert {(each.split, each.captions, each.tags) for each in reading.records} == {("gallery", (), ())}


def test_images_of_unsupported_formats_are_counted_separately(tmp_path):
    for name in ("a.jpg", "b.HEIC", "c/d.nef", "e.csv", "f.tsv", "g.xlsx", "h\udcff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert read_folder(tmp_path, []).counts == {
        f"{CONVERT} ('b.HEIC', 'c/d.nef')": 2,
        f"{OTHERS} ('e.csv', 'f.tsv', 'g.xlsx', …)": 4,
    }


def test_a_folder_of_images_of_unsupported_formats_or_that_cannot_be_listed_is_an_error(tmp_path):
    for name in ("a.heic", "b.avif", "notes.txt"):
        (tmp_path / name).touch()
    with refused(f"{tmp_path}: 2 images, all of unsupported formats ('a.heic', 'b.avif'); convert them"):
        read_folder(tmp_path, [])
    with refused("nowhere: cannot be listed: No such file or directory"):
        read_folder(tmp_path / "nowhere", [])


def test_links_are_followed_and_a_link_upward_does_not_loop(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/album").symlink_to(tmp_path / "photos")
    (tmp_path / "photos/up").symlink_to(tmp_path / "root")
    assert [record.id for record in read_folder(tmp_path / "root", []).records] == ["album/a.jpg"]


def test_folders_that_are_nested_by_the_thousand_are_refused_with_the_limit(tmp_path):
    with contextlib.chdir(tmp_path):
        for _ in range(1100):  # more than Python's functions may recurse
            Path("d").mkdir()
            os.chdir("d")
    with refused("more than 100 folders are nested here, which is the limit"):
        read_folder(tmp_path, [])
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)
