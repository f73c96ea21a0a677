import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.search.engine import AbsentError, images_for_sentence
from fne.search.folder import FolderWatch, Index, RowSource, index_folder, list_folder
from fne.serve import session as sessions
from fne.serve.session import Live
from fne.store.artifact import Artifact
from fne.store.layout import Layer
from tests.support.refusals import refused
from tests.support.search import draw


class RecordingSource:
    """Makes rows from the first digits of a digest, and records the images that it prepared."""

    def __init__(self) -> None:
        self.prepared: list[str] = []

    def open(self) -> RowSource:
        return RowSource([Layer("joint", 2)], "float32", self._prepare, self._rows)

    def _prepare(self, images, root) -> None:
        assert all((root / image.path).is_file() for image in images)
        self.prepared += [image.id for image in images]

    def _rows(self, digests) -> np.ndarray:
        values = [[int(each[:2], 16), int(each[2:4], 16)] for each in digests]
        return np.array(values, np.float32).reshape(-1, 2)


@pytest.fixture
def photos(tmp_path) -> Path:
    for color in ("red", "green"):
        draw(tmp_path / f"photos/{color}.png", color, "circle")
    return tmp_path / "photos"


def index(photos: Path, digest: str = "a") -> list[str]:
    """Index a folder, check every row, and return the images whose rows were computed."""
    source, scratch = RecordingSource(), photos.parent / "scratch"
    folder = list_folder(photos, workers=0, scratch=scratch)
    made_with = Index("model", Artifact(Path("m"), "model", digest), source.open)
    rows = index_folder(folder, made_with, scratch)
    digests = [image.sha256 for image in folder.images]
    assert rows.read(digests).tolist() == source._rows(digests).tolist()
    return source.prepared


def test_only_new_and_changed_images_are_computed(photos):
    assert index(photos) == ["green.png", "red.png"]
    assert index(photos) == []
    draw(photos / "deep/blue.png", "blue", "circle")
    draw(photos / "red.png", "red", "square")
    assert index(photos) == ["deep/blue.png", "red.png"]
    assert index(photos) == []
    assert index(photos, digest="b") == ["deep/blue.png", "green.png", "red.png"]  # of another model


def test_a_renamed_or_copied_image_is_not_computed_again(photos):
    index(photos)
    (photos / "red.png").rename(photos / "rouge.png")
    shutil.copy(photos / "green.png", photos / "vert.png")
    assert index(photos) == []
    (photos / "rouge.png").unlink()
    assert index(photos) == []
    found = list_folder(photos, 0, photos.parent / "scratch").images
    assert [image.id for image in found] == ["green.png", "vert.png"]


def test_a_damaged_index_is_computed_again(photos):
    index(photos)
    (shard,) = (photos.parent / "scratch/search").glob("*/shard-*.h5")
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    assert index(photos) == ["green.png", "red.png"]
    assert index(photos) == []


def test_the_second_of_two_concurrent_searches_waits_and_uses_the_index_of_the_first(photos, monkeypatch):
    """Locks belong to open files, so two threads exclude each other as two processes do."""
    scratch, origin = photos.parent / "scratch", Artifact(Path("m"), "model", "a")
    folder = list_folder(photos, 0, scratch)
    first, second, preparing, messages = RecordingSource(), RecordingSource(), Event(), []
    waiting = Event()

    def log(message: str) -> None:
        messages.append(message)
        waiting.set()

    def open_slowly() -> RowSource:
        preparing.set()
        assert waiting.wait(timeout=60)
        return first.open()

    monkeypatch.setattr("fne.search.folder._log", log)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(index_folder, folder, Index("model", origin, open_slowly), scratch)
        assert preparing.wait(timeout=60)
        two = pool.submit(index_folder, folder, Index("model", origin, second.open), scratch)
        found = [each.result().read([image.sha256 for image in folder.images]) for each in (one, two)]
    assert messages == [f"waiting for process {os.getpid()}, which indexes the same folder"]
    assert (first.prepared, second.prepared) == (["green.png", "red.png"], [])
    assert found[0].tolist() == found[1].tolist()


def test_an_index_stays_readable_when_another_search_replaces_it(photos):
    scratch, origin = photos.parent / "scratch", Artifact(Path("m"), "model", "a")
    before = list_folder(photos, 0, scratch)
    opened = index_folder(before, Index("model", origin, RecordingSource().open), scratch)
    draw(photos / "blue.png", "blue", "circle")
    index(photos)
    digests = [image.sha256 for image in before.images]
    assert opened.read(digests).tolist() == RecordingSource()._rows(digests).tolist()


def test_a_complete_index_is_used_without_a_lock(photos):
    index(photos)
    (lock,) = (photos.parent / "scratch/search").glob("*.lock")
    lock.unlink()
    assert index(photos) == []
    assert not lock.exists()


def test_unreadable_images_are_named_and_other_files_are_counted(photos, capsys):
    (photos / "broken.jpg").write_bytes(b"")
    (photos / "notes.txt").write_text("hello")
    (photos / "raw.heic").write_bytes(b"?")
    folder = list_folder(photos, 0, photos.parent / "scratch")
    assert folder.unreadable == {"broken.jpg": "the file is empty"}
    assert index(photos) == ["green.png", "red.png"]
    printed = capsys.readouterr().err
    assert f"{photos}: 1 images of unsupported formats, skipped" in printed
    assert f"{photos}: 1 files that are neither images nor annotations, skipped" in printed


def test_a_folder_that_is_missing_or_empty_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.png").write_bytes(b"")
    faults = {
        "none": "no such folder; use the path of a folder with photos",
        "file": "not a folder; use the path of a folder with photos",
        "empty": "the folder has no readable images",
        "broken": "the folder has no readable images; a.png: the file is empty",
    }
    for name, expected in faults.items():
        with refused(f"{tmp_path / name}: {expected}"):
            list_folder(tmp_path / name, 0, tmp_path / "scratch")


@pytest.fixture
def album(tmp_path):
    folder = tmp_path / "album"
    for number, color in enumerate(["teal", "olive"]):
        draw(folder / f"{number}.png", color, "circle")
    return folder


@pytest.fixture
def session(project, album):
    found = Live(project / "params.yaml", album).session
    found.prepare()
    return found


def answer(session):
    return images_for_sentence(session.snapshot, "a red circle", 24, folder=session.index())


def names(session):
    return sorted(match.id for match in answer(session).matches)


def look_twice(session):
    """The first look finds new files, and the second one that nobody writes to them any more."""
    return session.refresh_folder(), session.refresh_folder()


def test_a_folder_without_changes_has_none(album):
    watch = FolderWatch(album)
    (album / "notes.txt").write_text("no photo")
    (album / ".hidden.png").write_bytes(b"hidden")
    assert [watch.look(), watch.look()] == [False, False]


def test_a_new_file_counts_when_nobody_writes_to_it_any_more(album):
    watch = FolderWatch(album)
    content = (album / "0.png").read_bytes()
    with (album / "new.png").open("wb") as file:
        for part in (content[:50], content[50:100], content[100:]):
            file.write(part)
            file.flush()
            assert watch.look() is False
            assert watch.unfinished == {"new.png"}
    assert watch.look() is True
    assert watch.unfinished == set()
    assert watch.look() is False


def test_a_removed_file_a_renamed_one_and_a_new_subfolder_are_changes(album):
    watch = FolderWatch(album)
    (album / "0.png").unlink()
    assert watch.look() is True
    (album / "1.png").rename(album / "renamed.png")
    assert watch.look() is True  # one is gone at once
    assert watch.look() is True
    draw(album / "holiday/beach.png", "yellow", "line")
    assert [watch.look(), watch.look()] == [False, True]


def test_a_file_with_other_content_of_the_same_length_is_a_change(album):
    watch = FolderWatch(album)
    length = (album / "0.png").stat().st_size
    (album / "0.png").write_bytes(bytes(length))
    assert watch.look() is True  # what it was is gone at once
    assert watch.look() is True
    assert watch.look() is False


def test_a_folder_that_disappears_is_a_change_and_no_error(album):
    watch = FolderWatch(album)
    shutil.rmtree(album)
    assert [watch.look(), watch.look()] == [True, False]


def test_new_photos_are_found_without_a_restart_and_only_they_are_computed(session, album, project):
    assert names(session) == ["0.png", "1.png"]
    draw(album / "new.png", "navy", "square")
    first = session.folder.as_dict()
    assert look_twice(session) == (False, True)
    found = session.folder.as_dict()
    assert names(session) == ["0.png", "1.png", "new.png"]
    assert (found["state"], found["done"], found["total"], found["photos"]) == ("ready", 1, 1, 3)
    assert found["version"] != first["version"]
    assert session.refresh_folder() is False
    again = Live(project / "params.yaml", album).session
    again.prepare()
    assert answer(again) == answer(session)
    assert again.folder.as_dict()["version"] == found["version"]


def test_removed_and_changed_photos_are_not_found_as_they_were(session, album):
    before = session.index().by_name
    (album / "0.png").unlink()
    assert session.refresh_folder() is True
    assert names(session) == ["1.png"]
    draw(album / "1.png", "green", "square")
    draw(album / "2.png", "navy", "line")
    look_twice(session)
    after = session.index().by_name
    assert names(session) == sorted(after) == ["1.png", "2.png"]
    assert after["1.png"].sha256 != before["1.png"].sha256
    assert session.file(before["1.png"].sha256) is None


def test_a_request_that_has_begun_keeps_the_index_that_it_began_with(session, album):
    begun = session.for_request()
    before = answer(begun)
    draw(album / "new.png", "navy", "square")
    (album / "0.png").unlink()
    look_twice(session)
    assert answer(begun) == before
    assert names(session) == ["1.png", "new.png"]


def test_an_emptied_folder_has_nothing_to_find_until_photos_come_back(session, album, monkeypatch):
    content = (album / "0.png").read_bytes()
    shutil.rmtree(album)
    assert session.refresh_folder() is True
    assert session.folder.state == "failed"
    with pytest.raises(AbsentError, match="album: no such folder; use the path of a folder with photos"):
        answer(session)
    monkeypatch.setattr(sessions, "RETRY_SECONDS", 0.0)
    assert session.refresh_folder() is True  # tried again
    monkeypatch.setattr(sessions, "RETRY_SECONDS", 1000.0)
    album.mkdir()
    (album / "back.png").write_bytes(content)
    assert look_twice(session) == (False, True)
    assert (session.folder.state, session.folder.message) == ("ready", None)
    assert names(session) == ["back.png"]


def test_photos_of_before_are_searched_while_new_ones_cannot_be_indexed(session, album, monkeypatch, capsys):
    draw(album / "new.png", "navy", "square")
    session.refresh_folder()
    with monkeypatch.context() as patch:

        def full(*_):
            raise InputError("the disk is full")

        patch.setattr("fne.search.folder.index_folder", full)
        patch.setattr(sessions, "RETRY_SECONDS", 0.0)
        assert look_twice(session) == (True, True)
    assert capsys.readouterr().err.count("the folder is not indexed: the disk is full") == 1
    assert (session.folder.state, session.folder.message) == ("failed", "the disk is full")
    assert names(session) == ["0.png", "1.png"]
    monkeypatch.setattr(sessions, "RETRY_SECONDS", 0.0)
    assert session.refresh_folder() is True
    assert names(session) == ["0.png", "1.png", "new.png"]


def test_a_damaged_photo_is_listed_and_the_others_are_found(session, album):
    (album / "broken.png").write_bytes(b"\x89PNG broken")
    draw(album / "new.png", "navy", "square")
    look_twice(session)
    assert names(session) == ["0.png", "1.png", "new.png"]
    assert list(session.folder.as_dict()["unreadable"]) == ["broken.png"]


def test_the_thread_of_a_running_server_follows_the_folder(project, album, monkeypatch):
    monkeypatch.setattr(sessions, "POLL_SECONDS", 0.05)
    live = Live(project / "params.yaml", album)
    indexed = Event()
    monkeypatch.setattr(sessions, "say", lambda text, err: "3 photos" in text and indexed.set())
    live.start()
    try:
        live.session.network()
        draw(album / "new.png", "navy", "square")
        assert indexed.wait(60)
        assert names(live.session) == ["0.png", "1.png", "new.png"]
    finally:
        live.stop()
