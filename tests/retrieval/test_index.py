import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.retrieval.index import Maker, index_folder, list_folder
from fne.store.layout import Layer
from fne.store.lineage import Artifact
from tests.retrieval.projects import draw


class Counting:
    """Makes rows of the first digits of a digest, and notes which images it was asked for."""

    def __init__(self) -> None:
        self.prepared: list[str] = []

    def open(self) -> Maker:
        return Maker([Layer("joint", 2)], "float32", self._prepare, self._rows)

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
    """Index a folder, check every row, and return the images that had to be made."""
    counting, scratch = Counting(), photos.parent / "scratch"
    folder = list_folder(photos, workers=0, scratch=scratch)
    rows = index_folder(folder, "model", Artifact(Path("m"), "model", digest), scratch, counting.open)
    digests = [image.sha256 for image in folder.images]
    assert rows.read(digests).tolist() == counting._rows(digests).tolist()
    return counting.prepared


def test_only_new_and_changed_images_are_made(photos):
    assert index(photos) == ["green.png", "red.png"]
    assert index(photos) == []
    draw(photos / "deep/blue.png", "blue", "circle")
    draw(photos / "red.png", "red", "square")
    assert index(photos) == ["deep/blue.png", "red.png"]
    assert index(photos) == []


def test_a_renamed_or_copied_image_is_known(photos):
    index(photos)
    (photos / "red.png").rename(photos / "rouge.png")
    shutil.copy(photos / "green.png", photos / "vert.png")
    assert index(photos) == []


def test_a_deleted_image_is_listed_no_more(photos):
    index(photos)
    (photos / "red.png").unlink()
    assert index(photos) == []
    assert [image.id for image in list_folder(photos, 0, photos.parent / "scratch").images] == ["green.png"]


def test_rows_of_another_model_are_not_used(photos):
    index(photos)
    assert index(photos, digest="b") == ["green.png", "red.png"]


def test_a_damaged_index_is_made_again(photos):
    index(photos)
    (shard,) = (photos.parent / "scratch/search").glob("*/shard-*.h5")
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    assert index(photos) == ["green.png", "red.png"]
    assert index(photos) == []


def test_of_two_searches_at_once_the_second_waits_and_uses_what_the_first_made(photos, monkeypatch):
    """Locks belong to open files, so that two threads meet as two processes do."""
    scratch, origin = photos.parent / "scratch", Artifact(Path("m"), "model", "a")
    folder = list_folder(photos, 0, scratch)
    first, second, preparing, said = Counting(), Counting(), Event(), []
    waiting = Event()

    def say(message: str) -> None:
        said.append(message)
        waiting.set()

    def open_slowly() -> Maker:
        preparing.set()
        assert waiting.wait(timeout=60)
        return first.open()

    monkeypatch.setattr("fne.retrieval.index._say", say)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(index_folder, folder, "model", origin, scratch, open_slowly)
        assert preparing.wait(timeout=60)
        two = pool.submit(index_folder, folder, "model", origin, scratch, second.open)
        found = [each.result().read([image.sha256 for image in folder.images]) for each in (one, two)]
    assert said == [f"waiting for process {os.getpid()}, which indexes the same folder"]
    assert (first.prepared, second.prepared) == (["green.png", "red.png"], [])
    assert found[0].tolist() == found[1].tolist()


def test_an_index_stays_readable_when_another_search_replaces_it(photos):
    scratch, origin = photos.parent / "scratch", Artifact(Path("m"), "model", "a")
    before = list_folder(photos, 0, scratch)
    opened = index_folder(before, "model", origin, scratch, Counting().open)
    draw(photos / "blue.png", "blue", "circle")
    index(photos)
    digests = [image.sha256 for image in before.images]
    assert opened.read(digests).tolist() == Counting()._rows(digests).tolist()


def test_a_whole_index_is_used_where_nothing_may_be_written(photos):
    index(photos)
    (lock,) = (photos.parent / "scratch/search").glob("*.lock")
    lock.unlink()
    assert index(photos) == []
    assert not lock.exists()


def test_unreadable_files_are_named_and_others_are_passed_over(photos, capsys):
    (photos / "broken.jpg").write_bytes(b"")
    (photos / "notes.txt").write_text("hello")
    (photos / "raw.heic").write_bytes(b"?")
    folder = list_folder(photos, 0, photos.parent / "scratch")
    assert folder.unreadable == {"broken.jpg": "the file is empty"}
    assert index(photos) == ["green.png", "red.png"]
    said = capsys.readouterr().err
    assert f"{photos}: 1 images of formats that cannot be read here, passed over" in said
    assert f"{photos}: 1 files passed over" in said


def test_a_folder_that_is_missing_or_empty_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.png").write_bytes(b"")
    faults = {
        "none": "no such folder; name a folder of photos",
        "file": "is not a folder; name a folder of photos",
        "empty": "no images in it",
        "broken": "no images in it; a.png: the file is empty",
    }
    for name, expected in faults.items():
        with pytest.raises(InputError) as error:
            list_folder(tmp_path / name, 0, tmp_path / "scratch")
        assert error.value.message == f"{tmp_path / name}: {expected}"
