import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch

from fne.extraction.extractor import build_extractor
from fne.extraction.finished_rows import hardware_name
from fne.extraction.ray import worker as module
from fne.extraction.ray.worker import Worker, fingerprint
from fne.extraction.weights import load_weights
from tests.support.extraction import draw
from tests.support.settings import extract_settings, extractor_settings, runtime


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of a project, which is not the current folder."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/random.yaml").write_text("kind: random\nseed: 0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "project"


def new_worker(folder: Path, weights: str = "random.yaml", root: str = ".") -> Worker:
    own = runtime(device="cpu", threads=1, workers=2)
    return Worker(extract_settings(weights=weights), own, Path(root), folder)


def local_extractor(folder: Path):
    weights = load_weights(folder / "random.yaml", "alexnet")
    return build_extractor(extractor_settings(), weights, "auto", torch.device("cpu"))


def test_rows_equal_those_of_the_local_engine_and_have_their_hardware(folder):
    images = [draw(folder, number) for number in range(3)]
    result = new_worker(folder).compute(images)
    pixels = [module.read_pixels(image, folder, local_extractor(folder).resize) for image in images]
    assert np.array_equal(result.rows, local_extractor(folder).compute(pixels))
    assert result.hardware == hardware_name("cpu")
    assert result.idle_seconds >= 0


def test_a_worker_describes_its_process_and_its_fingerprint(folder):
    description = new_worker(folder).describe()
    assert description.process == f"{socket.gethostname()}:{os.getpid()}"
    assert description.fingerprint == fingerprint(local_extractor(folder).kind)
    assert {"torch", "numba", "pillow"} <= description.fingerprint.keys()


def test_the_model_is_loaded_once(folder, monkeypatch):
    loaded: list[Path] = []
    monkeypatch.setattr(
        module, "load_weights", lambda path, *rest: loaded.append(path) or load_weights(path, *rest)
    )
    worker = new_worker(folder)
    worker.describe()
    for number in range(3):
        worker.compute([draw(folder, number)])
    assert loaded == [Path("random.yaml")]


class SmallQueue:
    """A device with memory for two images."""

    ahead = 0

    def __init__(self, sizes):
        self._sizes = sizes

    def submit(self, pixels):
        self._sizes.append(len(pixels))
        if len(pixels) > 2:
            raise MemoryError
        return lambda: np.zeros((len(pixels), 1), dtype=np.float32)

    def release_memory(self):
        pass


def test_a_batch_that_was_halved_stays_so_for_the_following_work_units(folder, monkeypatch, capsys):
    images = [draw(folder, number) for number in range(4)]
    sizes: list[int] = []
    monkeypatch.setattr(module, "open_queue", lambda extractor: SmallQueue(sizes))
    worker = new_worker(folder)
    found = [len(worker.compute(unit).rows) for unit in (images[:1], images, images, images[:3])]
    assert found == [1, 4, 4, 3]
    assert sizes == [1, 4, 2, 2, 2, 2, 2, 1]
    assert capsys.readouterr().out.count("out of memory") == 1


def test_a_faulty_image_gives_the_same_message_as_the_local_engine(folder):
    image = draw(folder, 1)
    (folder / "1.png").write_bytes(b"other")
    result = new_worker(folder).compute([draw(folder, 0), image])
    assert str(result).startswith("1.png: has changed since the catalog was made: expected SHA-256 ")


def test_missing_weights_and_a_missing_folder_are_reported_with_the_name_of_the_node(folder):
    node = f"node {socket.gethostname()}"
    said = new_worker(folder, "none.pth").describe()
    assert said.startswith(f"{node}: none.pth: no such weights file; set extract.weights to a file")
    said = new_worker(folder / "missing").describe()
    assert said.startswith(
        f"{node}: {folder}/missing: cannot be opened (No such file or directory); make the "
    )
    assert said.endswith("or use absolute paths for catalog.root and extract.weights")
    worker = new_worker(folder / "missing", str(folder / "random.yaml"), str(folder))
    assert worker.compute([draw(folder, 2)]).rows.shape == (1, 9344)


def test_builds_of_one_version_for_different_devices_have_the_same_fingerprint(monkeypatch):
    monkeypatch.setattr(module, "version", lambda package: "2.15.0+cpu")
    assert fingerprint({"a": 1})["torch"] == "2.15.0"
