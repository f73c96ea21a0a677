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
from tests.support.refusals import refused
from tests.support.settings import extractor_settings


@pytest.fixture(autouse=True)
def no_announcement(monkeypatch):
    """The announcement times blank images, which the tests would count as computed."""
    monkeypatch.setattr(computer, "time_per_image", lambda *_: 1.0)
    monkeypatch.setattr(extraction, "announcement", lambda *_: "announced")
    monkeypatch.setattr(extraction, "summary", lambda *_: "done")


@pytest.fixture
def scratch(tmp_path) -> Scratch:
    return Scratch(tmp_path / "scratch", red_extractor().kind, red_extractor().features)


@pytest.fixture
def complete(tmp_path, scratch):
    """Return a function that computes what is missing and returns the sizes of the computed batches."""

    def complete(images, workers=0, batch=2, log=lambda _: None, remote=None) -> list[int]:
        images = [draw(tmp_path, each) if isinstance(each, int) else each for each in images]
        computed: list[int] = []
        extractor = red_extractor(computed)
        files = ImageFiles(images, tmp_path, extractor.resize)
        extract(
            files, extractor, scratch, LocalComputer(extractor.device, batch, workers), Report(log), remote
        )
        return computed

    return complete


def test_the_computers_are_those_that_the_parameters_allow():
    assert tuple(COMPUTERS) == settings.ENGINES


def rows(scratch, images, shards=3) -> dict[str, list[float]]:
    return {
        each: row.tolist()
        for _, ids, block in assemble(scratch, {each.id: each.sha256 for each in images}, shards)
        for each, row in zip(ids, block, strict=True)
    }


@pytest.mark.parametrize(("workers", "batch"), [(0, 1), (0, 16), (2, 3)])
def test_every_image_gets_its_own_row(tmp_path, scratch, complete, workers, batch):
    assert sum(complete(range(8), workers, batch)) == 8
    found = rows(scratch, [draw(tmp_path, number) for number in range(8)])
    for number in range(8):
        assert found[f"{number}.png"] == pytest.approx([redness(number), 2 * redness(number)], rel=1e-5)


def test_finished_images_are_never_computed_again(complete):
    assert [sum(complete(each)) for each in (range(5), range(5), [7, 2, 0, 9], [3])] == [5, 0, 2, 0]


def test_images_of_equal_content_are_computed_once(tmp_path, scratch, complete):
    image = draw(tmp_path, 3)
    (tmp_path / "copy.png").write_bytes((tmp_path / image.path).read_bytes())
    twin = replace(image, id="copy.png", path="copy.png")
    assert complete([image, twin]) == [1]
    assert sorted(rows(scratch, [image, twin], 1)) == ["3.png", "copy.png"]


def test_rows_of_another_kind_are_never_used(tmp_path, scratch, complete):
    complete(range(3))
    digests = [draw(tmp_path, number).sha256 for number in range(3)]
    other = Scratch(tmp_path / "scratch", red_extractor().kind | {"crops": "ten"}, 2)
    assert (len(scratch.rows(digests)), other.rows(digests)) == (3, {})


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_changed_stops_the_run_and_finished_rows_are_kept(tmp_path, scratch, complete, workers):
    images = sorted((draw(tmp_path, number) for number in range(6)), key=lambda image: image.sha256)
    (tmp_path / images[-1].path).write_bytes(b"other")
    with refused(f"{images[-1].path}: has changed since the catalog was made"):
        complete(images, workers, batch=1)
    assert len(scratch.rows([image.sha256 for image in images])) == 5
    assert complete([int(images[-1].path[0])]) == [1]


def test_a_second_run_waits_for_the_first_and_names_its_process(tmp_path, scratch, complete):
    image = draw(tmp_path, 4)
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
    assert complete([4], log=log) == []
    thread.join()
    assert logged[1] == f"waiting for process {os.getpid()}, which is computing the same rows"
    assert rows(scratch, [image]) == {"4.png": [1.0, 2.0]}


DIGESTS = [f"{journal}{number}" + "0" * 61 for journal in ("aa", "bb", "cc") for number in range(3)]


@pytest.fixture
def other(tmp_path) -> Scratch:
    """The same scratch folder, as another process opens it."""
    return Scratch(tmp_path / "scratch", red_extractor().kind, 2)


def test_a_journal_is_locked_when_its_first_image_is_taken(scratch, other):
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


def test_claims_whose_rows_were_not_written_are_released_after_an_error(scratch, other):
    with pytest.raises(InputError), Claims(scratch, set(DIGESTS)) as claims:
        claims.take(4)
        claims.pop(DIGESTS[:1])
        raise InputError("the disk is full")
    assert all(journal.unlock() is None for journal, _, _ in other.claims(DIGESTS))
    assert not other.is_busy(DIGESTS)


def test_images_that_others_compute_or_have_finished_are_not_claimed(scratch, other):
    journal = other.claim(DIGESTS[:3])
    journal.append(DIGESTS[1], np.zeros(2))
    journal.unlock()
    held = other.claim(DIGESTS[3:6])
    with Claims(scratch, set(DIGESTS)) as claims:
        assert claims.take(100) == ([DIGESTS[0], DIGESTS[2], *DIGESTS[6:]], [DIGESTS[1]])
    held.unlock()


@pytest.mark.parametrize(
    ("column", "layer", "value"),
    [(0, "conv", np.nan), (1, "conv", np.inf), (2, "fc6", np.nan), (4, "fc7", np.inf)],
)
def test_an_activation_that_is_not_finite_is_refused_with_image_and_layer(column, layer, value):
    row = np.zeros(5, dtype=np.float32)
    row[column] = value
    with refused(f"image 'a.jpg': layer {layer} has the value {value}; check the weights file"):
        check_finite(row, "a.jpg", [Layer("conv", 2), Layer("fc6", 1), Layer("fc7", 2)])


def watched(relative, images=WATCHED):
    """Rows whose first layer deviates by `relative` of its mean, and whose second layer is noise."""
    generator = np.random.default_rng(0)
    first = 1 + relative * generator.standard_normal((images, 50))
    return np.concatenate([first, generator.standard_normal((images, 5))], axis=1).astype(np.float32)


LAYERS = [Layer("conv1_1", 50), Layer("conv1_2", 5)]


def test_only_a_first_layer_that_hardly_differs_between_images_is_warned_about():
    message = feeding_warning(watched(0.001), LAYERS, TORCHVISION)
    assert message.startswith("Warning: layer conv1_1 hardly differs between the first 8 images")
    assert "RGB 0..1" in message
    for ordinary in (watched(0.5), watched(0.001, images=3), np.zeros((WATCHED, 55))):
        assert feeding_warning(ordinary, LAYERS, TORCHVISION) is None


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


def test_long_work_whose_result_a_remote_may_have_is_not_started(complete, monkeypatch):
    monkeypatch.setattr(extraction, "LONG_SECONDS", 0.0)
    with refused("computing it takes long; run `dvc fetch extract` to get it from 'team', or set runtime."):
        complete(range(3), remote="team")
    monkeypatch.setattr(extraction, "LONG_SECONDS", 600.0)
    assert sum(complete(range(3), remote="team")) == 3
