import pytest

from fne.core.errors import InputError
from fne.datasets.folder import read_folder


def test_images_at_any_depth_are_found_and_everything_else_is_passed_over(tmp_path):
    names = [
        "b.JPG",
        "a/c.png",
        "a/b/d.webp",
        "notes.txt",
        ".hidden.jpg",
        ".cache/e.jpg",
        "film.mp4",
        "__x/._f.jpg",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    records = read_folder(tmp_path, []).records
    assert [record.id for record in records] == ["a/b/d.webp", "a/c.png", "b.JPG"]
    assert {(record.split, record.captions, record.tags) for record in records} == {("gallery", (), ())}


def test_links_are_followed_and_a_link_upward_does_not_loop(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/album").symlink_to(tmp_path / "photos")
    (tmp_path / "photos/up").symlink_to(tmp_path / "root")
    assert [record.id for record in read_folder(tmp_path / "root", []).records] == ["album/a.jpg"]


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_silently_empty(tmp_path):
    with pytest.raises(InputError, match="nowhere: cannot be listed: No such file or directory"):
        read_folder(tmp_path / "nowhere", [])
