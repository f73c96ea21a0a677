import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.search.folder import RowSource, index_folder, list_folder
from fne.store.artifact import Artifact
from fne.store.layout import Layer
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
        return np.array([[int(each[:2], 16), int(each[2:4], 16)] for each in digests], np.float32).reshape(
            -1, 2
        )


@pytest.fixture
def photos(tmp_path) -> Path:
    for color in ("red", "green"):
        draw(tmp_path / f"photos/{color}.png", color, "circle")
    return tmp_path / "photos"


def index(photos: Path, digest: str = "a") -> list[str]:
    """Index a folder, check every row, and return the images whose rows were computed."""
    source, scratch = RecordingSource(), photos.parent / "scratch"
    folder = list_folder(photos, workers=0, scratch=scratch)
    rows = index_folder(folder, "model", Artifact(Path("m"), "model", digest), scratch, source.open)
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


def test_a_renamed_or_copied_image_is_not_computed_again(photos):
    index(photos)
    (photos / "red.png").rename(photos / "rouge.png")
    shutil.copy(photos / "green.png", photos / "vert.png")
    assert index(photos) == []


def test_a_deleted_image_is_no_longer_listed(photos):
    index(photos)
    (photos / "red.png").unlink()
    assert index(photos) == []
    assert [image.id for image in list_folder(photos, 0, photos.parent / "scratch").images] == ["green.png"]


def test_rows_of_another_model_are_not_used(photos):
    index(photos)
    assert index(photos, digest="b") == ["green.png", "red.png"]


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
        one = pool.submit(index_folder, folder, "model", origin, scratch, open_slowly)
        assert preparing.wait(timeout=60)
        two = pool.submit(index_folder, folder, "model", origin, scratch, second.open)
        found = [each.result().read([image.sha256 for image in folder.images]) for each in (one, two)]
    assert messages == [f"waiting for process {os.getpid()}, which indexes the same folder"]
    assert (first.prepared, second.prepared) == (["green.png", "red.png"], [])
    assert found[0].tolist() == found[1].tolist()


def test_an_index_stays_readable_when_another_search_replaces_it(photos):
    scratch, origin = photos.parent / "scratch", Artifact(Path("m"), "model", "a")
    before = list_folder(photos, 0, scratch)
    opened = index_folder(before, "model", origin, scratch, RecordingSource().open)
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
        with pytest.raises(InputError) as error:
            list_folder(tmp_path / name, 0, tmp_path / "scratch")
        assert error.value.message == f"{tmp_path / name}: {expected}"
