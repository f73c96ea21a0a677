import os
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import torch
from PIL import Image

from fne.core import settings
from fne.core.errors import InputError
from fne.extraction import computer
from fne.extraction import run as extraction
from fne.extraction.computer import LocalComputer
from fne.extraction.extractor import build_extractor
from fne.extraction.finished_rows import Scratch
from fne.extraction.preprocess import RESIZES
from fne.extraction.read_images import ImageFiles
from fne.extraction.run import (
    COMPUTERS,
    WATCHED,
    Claims,
    Report,
    assemble,
    check_finite,
    extract,
    feeding_warning,
)
from fne.extraction.settings import CAFFE, TORCHVISION
from fne.extraction.weights import load_weights
from fne.store.layout import Layer
from tests.support.extraction import draw, red_extractor, redness
from tests.support.settings import extractor_settings


@pytest.fixture(autouse=True)
def no_announcement(monkeypatch):
    """The announcement times blank images, which the tests would count as computed."""
    monkeypatch.setattr(computer, "time_per_image", lambda *_: 1.0)
    monkeypatch.setattr(extraction, "announcement", lambda *_: "announced")
    monkeypatch.setattr(extraction, "summary", lambda *_: "done")


def complete(scratch, images, root, extractor, batch, workers, log, remote=None):
    """Compute what is missing in this process; return the shards of a store."""
    files = ImageFiles(images, root, extractor.resize)
    device = LocalComputer(extractor.device, batch, workers)
    return extract(files, extractor, scratch, device, Report(log), remote)


def test_the_computers_are_those_that_the_parameters_allow():
    assert tuple(COMPUTERS) == settings.ENGINES


def run(folder, numbers, workers=0, batch=2, log=lambda _: None) -> int:
    """Complete images and return how many were computed."""
    computed: list[int] = []
    extractor = red_extractor(computed)
    scratch = Scratch(folder / "scratch", extractor.kind, extractor.features)
    complete(scratch, [draw(folder, number) for number in numbers], folder, extractor, batch, workers, log)
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


def test_rows_of_another_kind_are_never_used(tmp_path):
    run(tmp_path, range(3))
    extractor = red_extractor()
    other = Scratch(tmp_path / "scratch", extractor.kind | {"crops": "ten"}, extractor.features)
    assert other.rows([draw(tmp_path, number).sha256 for number in range(3)]) == {}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_changed_stops_the_run_and_finished_rows_are_kept(tmp_path, workers):
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
    logged: list[str] = []
    waiting = Event()

    def log(line):
        logged.append(line)
        if line.startswith("waiting"):
            waiting.set()

    def finish_later():
        waiting.wait(60)
        journal.append(image.sha256, np.array([1.0, 2.0]))
        journal.unlock()

    thread = Thread(target=finish_later)
    thread.start()
    assert run(tmp_path, [4], log=log) == 0
    thread.join()
    assert logged[1] == f"waiting for process {os.getpid()}, which is computing the same images"
    assert rows(tmp_path, [4]) == {"4.png": [1.0, 2.0]}


DIGESTS = [f"{journal}{number}" + "0" * 61 for journal in ("aa", "bb", "cc") for number in range(3)]


def test_a_journal_is_locked_when_its_first_image_is_taken(tmp_path):
    scratch, other = (Scratch(tmp_path, {}, features=2) for _ in range(2))
    with Claims(scratch, set(DIGESTS)) as claims:
        assert claims.take(0) == ([], [])
        assert claims.take(2) == (DIGESTS[:2], [])
        assert other.is_busy(DIGESTS[:3])
        assert not other.is_busy(DIGESTS[3:6])
        assert claims.take(2) == (DIGESTS[2:4], [])
        assert claims.left
        assert claims.take(100) == (DIGESTS[4:], [])
        assert not claims.left
        assert other.is_busy(DIGESTS)


def test_claims_whose_rows_were_not_written_are_released_after_an_error(tmp_path):
    scratch, other = (Scratch(tmp_path, {}, features=2) for _ in range(2))
    with pytest.raises(InputError), Claims(scratch, set(DIGESTS)) as claims:
        claims.take(4)
        claims.pop(DIGESTS[:1], "EPYC")
        raise InputError("the disk is full")
    assert all(journal.unlock() is None for journal, _, _ in other.claims(DIGESTS))
    assert not other.is_busy(DIGESTS)


def test_images_that_others_compute_or_have_finished_are_not_claimed(tmp_path):
    scratch, other = (Scratch(tmp_path, {}, features=2) for _ in range(2))
    (finished,) = other.by_journal(DIGESTS[:3])
    journal = other.claim(finished)
    journal.append(DIGESTS[1], np.zeros(2))
    journal.unlock()
    held = other.claim(DIGESTS[3:6])
    with Claims(scratch, set(DIGESTS)) as claims:
        assert claims.take(100) == ([DIGESTS[0], DIGESTS[2], *DIGESTS[6:]], [DIGESTS[1]])
    held.unlock()


@pytest.mark.parametrize(("column", "layer"), [(0, "conv"), (1, "conv"), (2, "fc6"), (4, "fc7")])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_activation_that_is_not_finite_is_refused_with_image_and_layer(column, layer, value):
    row = np.zeros(5, dtype=np.float32)
    row[column] = value
    with pytest.raises(InputError) as caught:
        check_finite(row, "a.jpg", [Layer("conv", 2), Layer("fc6", 1), Layer("fc7", 2)])
    assert caught.value.message == (
        f"image 'a.jpg': layer {layer} has the value {value}; check the weights file and the image"
    )


def watched(relative, images=WATCHED):
    """Rows whose first layer deviates by `relative` of its mean, and whose second layer is noise."""
    generator = np.random.default_rng(0)
    first = 1 + relative * generator.standard_normal((images, 50))
    return np.concatenate([first, generator.standard_normal((images, 5))], axis=1).astype(np.float32)


LAYERS = [Layer("conv1_1", 50), Layer("conv1_2", 5)]


def test_a_first_layer_that_hardly_differs_between_images_is_warned_about():
    message = feeding_warning(watched(0.001), LAYERS, TORCHVISION)
    assert message.startswith("Warning: layer conv1_1 hardly differs between the first 8 images")
    assert "RGB 0..1" in message


def test_an_ordinary_first_layer_is_not_warned_about():
    assert feeding_warning(watched(0.5), LAYERS, TORCHVISION) is None
    assert feeding_warning(watched(0.001, images=3), LAYERS, TORCHVISION) is None
    assert feeding_warning(np.zeros((WATCHED, 55)), LAYERS, TORCHVISION) is None


@pytest.mark.skipif("FNE_REAL_DATA" not in os.environ, reason="FNE_REAL_DATA does not name a folder")
def test_the_statistic_tells_right_from_wrong_feeding_of_real_weights():
    """Real convolutions of VGG16, and the same ones rewritten for Caffe's input, on real photographs."""
    folder = Path(os.environ["FNE_REAL_DATA"])
    weights = load_weights(folder / "weights/vgg16_conv.safetensors", "vgg16", "torchvision")
    files = sorted((folder / "flickr8k-240").rglob("*.jpg"))[:WATCHED]
    pixels = [RESIZES["squash"](Image.open(file).convert("RGB")) for file in files]
    weight = weights.state["features.0.weight"]
    mean, deviation = (torch.tensor(values) for values in (TORCHVISION.mean, TORCHVISION.deviation))
    shift = (torch.tensor(CAFFE.mean).flip(0) / 255 - mean) / deviation
    rewritten = weights.state | {
        "features.0.weight": (weight / (255 * deviation.view(1, 3, 1, 1))).flip(1),
        "features.0.bias": weights.state["features.0.bias"] + (weight.sum(dim=(2, 3)) * shift).sum(dim=1),
    }
    settings = extractor_settings(backbone="vgg16")
    rows = {}
    for name, state, feeding in (
        ("right", weights.state, TORCHVISION),
        ("wrong", rewritten, TORCHVISION),
        ("caffe", rewritten, CAFFE),
    ):
        first = {key: value for key, value in state.items() if key.startswith("features.0.")}
        chosen = replace(weights, state=first, input=feeding)
        built = build_extractor(settings, chosen, "plain", torch.device("cpu"))
        rows[name] = built.compute(pixels), built.layers, feeding
    assert feeding_warning(*rows["right"]) is None
    assert feeding_warning(*rows["caffe"]) is None
    assert "relative deviation 0.0" in feeding_warning(*rows["wrong"])
    assert np.allclose(rows["right"][0], rows["caffe"][0], atol=1e-3)


def test_long_work_whose_result_a_remote_may_have_is_not_started(tmp_path, monkeypatch):
    images, extractor = [draw(tmp_path, number) for number in range(3)], red_extractor()
    scratch = Scratch(tmp_path / "scratch", extractor.kind, extractor.features)
    monkeypatch.setattr(extraction, "LONG_SECONDS", 0.0)
    with pytest.raises(InputError) as caught:
        complete(scratch, images, tmp_path, extractor, 1, 0, lambda text: None, remote="team")
    assert caught.value.message == (
        "dvc.lock names this store, but the cache does not have it and computing it takes long; run "
        "`dvc fetch extract` to get it from 'team', or set runtime.missing_store to compute"
    )
    monkeypatch.setattr(extraction, "LONG_SECONDS", 600.0)
    complete(scratch, images, tmp_path, extractor, 1, 0, lambda text: None, remote="team")
    assert len(scratch.rows([image.sha256 for image in images])) == 3
