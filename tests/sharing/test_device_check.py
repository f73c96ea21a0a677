"""`fne doctor --device`: the self-test, on the CPU and on the pretended GPU."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fne.core import device as core_device
from fne.extraction.computer import HostQueue
from fne.sharing import device_check
from tests.support.commands import fne, refused
from tests.support.imports import ROOT
from tests.support.pretended_gpu import pretended_gpu
from tests.support.projects import change_params


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with a small network, and a self-test that is over quickly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    changes = {
        "extract": {"backbone": "alexnet", "crops": "center"},
        "train": {"batch": 8, "embed_dim": 8, "word_dim": 4},
        "runtime": {"threads": 1},
    }
    change_params(tmp_path, changes)
    for name, value in {"IMAGES": 5, "SPEED_SECONDS": 0.0, "SIDE": 64}.items():
        monkeypatch.setattr(device_check, name, value)
    return tmp_path


def doctor(device):
    return fne("doctor", "--device", device, catch_exceptions=False)


def test_the_cpu_computes_what_the_reference_does_and_a_json_file_has_all_figures(project):
    result = doctor("cpu")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    said = "5 drawn images, alexnet, crops center, compared with algorithm 'plain' on the CPU in float32"
    assert lines[1] == said
    assert lines[3].split()[:2] == ["precision", "algorithm"]
    assert lines[4].split()[:3] == ["float32", "plain", "0.0e+00"]
    assert "no problems found" in lines
    advice = lines.index("advice for the section runtime of params.yaml:")
    assert lines[advice + 1 : advice + 3] == ["  device: cpu", "  batch: 1"]
    assert lines[-1] == ".fne/doctor/cpu.json: the same and more, for a bug report"
    found = json.loads((project / ".fne/doctor/cpu.json").read_text())
    assert found["machine"]["torch"] == torch.__version__
    assert found["settings"]["backbone"] == "alexnet"
    assert found["problems"] == []
    [row] = found["precisions"]
    assert (row["precision"], row["flipped"], row["repeatable"]) == ("float32", 0.0, True)
    assert row["images_per_second"] > 0
    assert found["step"]["relative_difference"] == 0


def test_without_a_gpu_the_test_of_one_is_refused(project, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    said = refused("doctor", "--device", "cuda")
    without = (
        f"Error: torch finds no GPU: torch {torch.__version__} is built without CUDA; check `nvidia-smi` "
    )
    assert said.startswith(without)


@pytest.fixture
def gpu(project, monkeypatch):
    """A pretended GPU with 8 GB, of which an image takes one."""
    used = []
    values = {
        "has_gpu": lambda: True,
        "device_name": lambda device: "Pretended",
        "free_memory": lambda device: 8 * 10**9,
        "synchronize": lambda device: None,
        "reset_peak_memory": lambda device: used.clear(),
        "peak_memory": lambda device: 10**9 * (1 + max(used)),
        "open_queue": lambda extractor: _Queue(extractor, used),
    }
    for name, value in values.items():
        monkeypatch.setattr(device_check, name, value)
    monkeypatch.setattr(core_device, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    with pretended_gpu() as pretended:
        yield pretended


class _Queue(HostQueue):
    def __init__(self, extractor, used):
        super().__init__(extractor)
        self.used = used

    def submit(self, pixels):
        self.used.append(len(pixels))
        return super().submit(pixels)


def test_a_gpu_is_tested_in_every_precision_and_the_batch_that_fits_is_estimated(gpu):
    result = doctor("cuda")
    lines = result.output.splitlines()
    assert lines[0].startswith("Pretended, torch ")
    assert [line.split()[0] for line in lines[4:7]] == ["bfloat16", "float16", "float32"]
    assert "batch of 16 images; up to 7 fit" in lines
    assert "no problems found" in lines


def test_a_gpu_that_computes_something_else_and_other_bits_every_time_is_found(gpu, monkeypatch):
    submit, calls = _Queue.submit, []

    def wrong(self, pixels):
        calls.append(1)
        rows = submit(self, pixels)()
        return lambda: rows * np.float32(1.001) * np.float32(1 + 1e-7 * len(calls))

    monkeypatch.setattr(_Queue, "submit", wrong)
    lines = doctor("cuda").output.splitlines()
    assert any(line.startswith("float32: rows differ from the CPU's by 1.0e-03") for line in lines)
    said = "float32: the same images gave other bits when computed again or alone"
    assert any(line.startswith(said) for line in lines)
    assert "no problems found" not in lines
