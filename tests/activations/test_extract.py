import os
import time
from threading import Thread

import numpy as np
import pytest

from fne.activations import engines, extract
from fne.activations.extract import assemble, check_finite, complete
from fne.activations.scratch import Scratch
from fne.core.errors import InputError
from fne.store.layout import Layer
from tests.activations.samples import draw, red_extractor, redness


@pytest.fixture(autouse=True)
def no_announcement(monkeypatch):
    """For the announcement, blank images are timed, which would count as computed."""
    monkeypatch.setattr(engines, "seconds_per_image", lambda *_: 1.0)
    monkeypatch.setattr(extract, "announcement", lambda *_: "announced")
    monkeypatch.setattr(extract, "summary", lambda *_: "done")


def run(folder, numbers, workers=0, batch=2, say=lambda _: None) -> int:
    """Complete images and return how many were computed."""
    computed: list[int] = []
    extractor = red_extractor(computed)
    scratch = Scratch(folder / "scratch", extractor.kind, extractor.features)
    complete(scratch, [draw(folder, number) for number in numbers], folder, extractor, batch, workers, say)
    return sum(computed)


def rows(folder, numbers, shards=3) -> dict[str, list[float]]:
    extractor = red_extractor()
    scratch = Scratch(folder / "scratch", extractor.kind, extractor.features)
    images = [draw(folder, number) for number in numbers]
    return {
        each: row.tolist()
        for _, ids, block in assemble(scratch, images, shards)
        for each, row in zip(ids, block, strict=True)
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_every_image_gets_its_own_row(tmp_path, workers, batch):
    assert run(tmp_path, range(8), workers, batch) == 8
    found = rows(tmp_path, range(8))
    for number in range(8):
        assert found[f"{number}.png"] == pytest.approx([redness(number), 2 * redness(number)], rel=1e-5)


def test_finished_images_are_never_computed_again(tmp_path):
    assert run(tmp_path, range(5)) == 5
    assert run(tmp_path, range(5)) == 0
    assert run(tmp_path, [7, 2, 0, 9]) == 2
    assert run(tmp_path, [3]) == 0


def test_images_of_equal_content_are_computed_once(tmp_path):
    image = draw(tmp_path, 3)
    (tmp_path / "copy.png").write_bytes((tmp_path / image.path).read_bytes())
    twin = type(image)("copy.png", "copy.png", image.sha256, image.bytes, 40, 30)
    computed: list[int] = []
    extractor = red_extractor(computed)
    scratch = Scratch(tmp_path / "scratch", extractor.kind, extractor.features)
    complete(scratch, [image, twin], tmp_path, extractor, 2, 0, lambda _: None)
    assert computed == [1]
    assert sorted(each for _, ids, _ in assemble(scratch, [image, twin], 1) for each in ids) == [
        "3.png",
        "copy.png",
    ]


def test_rows_of_another_kind_are_never_taken(tmp_path):
    run(tmp_path, range(3))
    extractor = red_extractor()
    other = Scratch(tmp_path / "scratch", extractor.kind | {"crops": "ten"}, extractor.features)
    assert other.rows([draw(tmp_path, number).sha256 for number in range(3)]) == {}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_changed_stops_the_run_and_keeps_what_is_finished(tmp_path, workers):
    images = sorted((draw(tmp_path, number) for number in range(6)), key=lambda image: image.sha256)
    (tmp_path / images[-1].path).write_bytes(b"other")
    extractor = red_extractor()
    scratch = Scratch(tmp_path / "scratch", extractor.kind, extractor.features)
    with pytest.raises(InputError, match=rf"{images[-1].path}: has changed since the catalog was made"):
        complete(scratch, images, tmp_path, extractor, 1, workers, lambda _: None)
    assert len(scratch.rows([image.sha256 for image in images])) == 5
    assert run(tmp_path, [int(images[-1].path[0])]) == 1


def test_a_second_run_waits_for_the_first_and_names_its_process(tmp_path):
    image = draw(tmp_path, 4)
    extractor = red_extractor()
    scratch = Scratch(tmp_path / "scratch", extractor.kind, extractor.features)
    ((journal, _, _),) = scratch.claims([image.sha256])
    said: list[str] = []

    def finish_later():
        time.sleep(1)
        journal.append(image.sha256, np.array([1.0, 2.0]))
        journal.unlock()

    thread = Thread(target=finish_later)
    thread.start()
    assert run(tmp_path, [4], say=said.append) == 0
    thread.join()
    assert said[1] == f"waiting for process {os.getpid()}, which is computing the same images"
    assert rows(tmp_path, [4]) == {"4.png": [1.0, 2.0]}


@pytest.mark.parametrize(("column", "layer"), [(0, "conv"), (1, "conv"), (2, "fc6"), (4, "fc7")])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_activation_that_is_not_finite_is_refused_with_image_and_layer(column, layer, value):
    row = np.zeros(5, dtype=np.float32)
    row[column] = value
    with pytest.raises(InputError) as caught:
        check_finite(row, "a.jpg", [Layer("conv", 2), Layer("fc6", 1), Layer("fc7", 2)])
    assert caught.value.message == (
        f"image 'a.jpg': layer {layer} gives {value}; check the weights file and the image"
    )
