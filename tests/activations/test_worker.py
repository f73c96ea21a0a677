import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch

from fne.activations import worker as module
from fne.activations.engines import Recipe
from fne.activations.extractor import build_extractor
from fne.activations.processor import processor_name
from fne.activations.weights import load_weights
from fne.activations.worker import Worker, made_with
from tests.activations.samples import draw
from tests.activations.test_extractor import choices
from tests.core.test_runtime import runtime


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A project's folder that this process is not in."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/random.yaml").write_text("kind: random\nseed: 0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "project"


def new_worker(folder: Path, weights: str = "random.yaml", root: str = ".") -> Worker:
    recipe = Recipe(choices(), Path(weights), runtime(device="cpu", threads=1, workers=2))
    return Worker(recipe, Path(root), folder)


def local_extractor(folder: Path):
    weights = load_weights(folder / "random.yaml", "alexnet")
    return build_extractor(choices(), weights, "auto", torch.device("cpu"))


def test_rows_are_those_of_the_local_engine_and_come_with_their_processor(folder):
    images = [draw(folder, number) for number in range(3)]
    answer = new_worker(folder).compute(images)
    pixels = [module.read_pixels(image, folder, local_extractor(folder).resize) for image in images]
    assert np.array_equal(answer.rows, local_extractor(folder).compute(pixels))
    assert answer.processor == processor_name("cpu")
    assert answer.waited >= 0


def test_a_worker_tells_its_process_and_what_its_rows_are_made_with(folder):
    description = new_worker(folder).describe()
    assert description.process == f"{socket.gethostname()}:{os.getpid()}"
    assert description.made_with == made_with(local_extractor(folder).kind)
    assert {"torch", "numba", "pillow"} <= description.made_with.keys()


def test_the_model_is_loaded_once(folder, monkeypatch):
    loaded: list[Path] = []
    monkeypatch.setattr(
        module, "load_weights", lambda path, backbone: loaded.append(path) or load_weights(path, backbone)
    )
    worker = new_worker(folder)
    worker.describe()
    for number in range(3):
        worker.compute([draw(folder, number)])
    assert loaded == [Path("random.yaml")]


def test_a_fault_of_an_image_is_answered_as_it_would_be_said_locally(folder):
    image = draw(folder, 1)
    (folder / "1.png").write_bytes(b"other")
    answer = new_worker(folder).compute([draw(folder, 0), image])
    assert str(answer).startswith("1.png: has changed since the catalog was made: it was ")


def test_weights_that_a_node_does_not_see_are_said_with_the_node(folder):
    assert new_worker(folder, "none.pth").describe() == (
        f"node {socket.gethostname()}: none.pth: no such weights file; set extract.weights to a file, such as "
        "weights/random.yaml"
    )


def test_a_folder_that_a_node_does_not_see_is_said_with_what_to_do(folder):
    missing = folder / "elsewhere"
    assert new_worker(missing).describe() == (
        f"node {socket.gethostname()}: {missing}: cannot be entered (No such file or directory); every node must "
        "see the project's folder there, or catalog.root and extract.weights must be absolute"
    )


def test_absolute_paths_need_no_folder(folder):
    worker = new_worker(folder / "elsewhere", str(folder / "random.yaml"), str(folder))
    assert worker.compute([draw(folder, 2)]).rows.shape == (1, 9344)


def test_builds_of_one_version_for_different_devices_are_alike(monkeypatch):
    monkeypatch.setattr(module, "version", lambda package: "2.15.0+cpu")
    assert made_with({"a": 1})["torch"] == "2.15.0"
