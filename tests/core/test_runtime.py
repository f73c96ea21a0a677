import shutil
from pathlib import Path

import pytest
import torch

from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.runtime import Runtime, load_runtime
from tests.imports import ROOT
from tests.projects import change_params


def runtime(**changes) -> Runtime:
    return Runtime(
        **(
            {
                "device": "auto",
                "threads": 0,
                "workers": 0,
                "batch": 0,
                "engine": "local",
                "algorithm": "auto",
                "scratch": ".fne",
            }
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


@pytest.fixture
def params(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("FNE_ENGINE", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path / "params.yaml"


def test_the_engine_is_the_one_of_the_parameters(params):
    assert load_runtime(params).engine == "local"
    change_params(params.parent, {"runtime": {"engine": "ray"}})
    assert load_runtime(params).engine == "ray"


def test_the_environment_wins_over_the_parameters(params, monkeypatch):
    monkeypatch.setenv("FNE_ENGINE", "ray")
    assert load_runtime(params).engine == "ray"


def test_an_empty_variable_counts_as_none(params, monkeypatch):
    monkeypatch.setenv("FNE_ENGINE", "")
    assert load_runtime(params).engine == "local"


def test_an_unknown_engine_is_refused_with_the_choices(params, monkeypatch):
    change_params(params.parent, {"runtime": {"engine": "spark"}})
    with pytest.raises(InputError) as caught:
        load_runtime(params)
    assert caught.value.message == (
        f"{params}: section 'runtime': engine: 'spark' is not one of 'local', 'ray'"
    )
    change_params(params.parent, {"runtime": {"engine": "local"}})
    monkeypatch.setenv("FNE_ENGINE", "dask")
    with pytest.raises(InputError) as caught:
        load_runtime(params)
    assert caught.value.message == "FNE_ENGINE: 'dask' is not one of 'local', 'ray'"
