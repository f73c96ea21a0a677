"""Photos that are added, changed or removed while the server runs are noticed, and replace the index as a whole."""

import shutil
import threading

import pytest

from fne.core.errors import InputError
from fne.search.folder_index import FolderWatch
from fne.serve import session as sessions
from fne.serve.answers import AbsentError, Filters, images_for_sentence
from fne.serve.session import Live
from tests.support.search import draw

QUERY = ("a red circle", Filters("folder"), 24)


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


def names(session):
    return sorted(match["name"] for match in images_for_sentence(session, *QUERY)["matches"])


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
    assert images_for_sentence(again, *QUERY) == images_for_sentence(session, *QUERY)
    assert again.folder.as_dict()["version"] == found["version"]


def test_removed_and_changed_photos_are_not_found_as_they_were(session, album):
    before = {match["name"]: match for match in images_for_sentence(session, *QUERY)["matches"]}
    (album / "0.png").unlink()
    assert session.refresh_folder() is True
    assert names(session) == ["1.png"]
    draw(album / "1.png", "green", "square")
    draw(album / "2.png", "navy", "line")
    look_twice(session)
    after = {match["name"]: match for match in images_for_sentence(session, *QUERY)["matches"]}
    assert sorted(after) == ["1.png", "2.png"]
    assert after["1.png"]["picture"] != before["1.png"]["picture"]
    assert session.file(before["1.png"]["picture"]) is None


def test_a_request_that_has_begun_keeps_the_index_that_it_began_with(session, album):
    begun = session.for_request()
    before = images_for_sentence(begun, *QUERY)
    draw(album / "new.png", "navy", "square")
    (album / "0.png").unlink()
    look_twice(session)
    assert images_for_sentence(begun, *QUERY) == before
    assert names(session) == ["1.png", "new.png"]


def test_an_emptied_folder_has_nothing_to_find_until_photos_come_back(session, album, monkeypatch):
    content = (album / "0.png").read_bytes()
    shutil.rmtree(album)
    assert session.refresh_folder() is True
    assert session.folder.state == "failed"
    with pytest.raises(AbsentError, match="album: no such folder; use the path of a folder with photos"):
        images_for_sentence(session, *QUERY)
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

        patch.setattr("fne.search.folder_index.index_folder", full)
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
    indexed = threading.Event()
    monkeypatch.setattr(sessions, "say", lambda text, err: "3 photos" in text and indexed.set())
    live.start()
    try:
        live.session.network()
        draw(album / "new.png", "navy", "square")
        assert indexed.wait(60)
        assert names(live.session) == ["0.png", "1.png", "new.png"]
    finally:
        live.stop()
