from pathlib import Path

import pytest
import torch

from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.runtime import Runtime


def runtime(**changes) -> Runtime:
    return Runtime(
        **(
            {"device": "auto", "threads": 0, "workers": 0, "batch": 0, "algorithm": "auto", "scratch": ".fne"}
            | changes
        )
    )


def test_scratch_counts_from_the_root_that_dvc_names(monkeypatch):
    monkeypatch.setenv("DVC_ROOT", "/project")
    assert runtime().scratch_folder() == Path("/project/.fne")


def test_an_absolute_scratch_folder_stays(monkeypatch):
    monkeypatch.setenv("DVC_ROOT", "/project")
    assert runtime(scratch="/shared/scratch").scratch_folder() == Path("/shared/scratch")


def test_auto_falls_back_to_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert prepare_device(runtime()).type == "cpu"


def test_cuda_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError) as caught:
        prepare_device(runtime(device="cuda"))
    assert caught.value.message == (
        "params.yaml: runtime.device is 'cuda', but torch finds no GPU here; use 'auto' or 'cpu'"
    )


def test_threads_are_set():
    before = torch.get_num_threads()
    try:
        prepare_device(runtime(device="cpu", threads=1))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
