import os
import subprocess
import sys

import pytest
import torch

from fne.core import device
from fne.core.device import (
    CUBLAS_VARIABLE,
    free_memory,
    is_out_of_memory,
    prepare_device,
    use_training_threads,
)
from fne.core.settings import Runtime
from tests.support.refusals import refused
from tests.support.settings import runtime

CPU = torch.device("cpu")


def write_limits(folder, limit, used, cached):
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


def test_free_memory_is_what_the_system_can_give_within_the_limit_of_the_container(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(device, "CGROUP", tmp_path)
    assert free_memory(CPU) > 2**27  # without the files of Linux it is all memory
    (tmp_path / "meminfo").write_text("MemTotal:  100 kB\nMemAvailable:  10 kB\n")
    assert free_memory(CPU) == 10 * 1024
    write_limits(tmp_path, 9000, 5000, 1000)
    assert free_memory(CPU) == 5000
    write_limits(tmp_path, "max", 5000, 1000)
    assert free_memory(CPU) == 10 * 1024
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert free_memory(CPU) == 10 * 256


def test_on_a_cpu_gradients_of_repeated_rows_have_the_same_bits_every_time():
    assert prepare_device(Runtime.model_construct(device="cpu", threads=2)) == CPU
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 50, (2000,), generator=generator)
    table = torch.rand(50, 64, generator=generator, requires_grad=True)
    weights = torch.rand(2000, 64, generator=generator)
    gradients = [torch.autograd.grad((table[rows] * weights).sum(), table)[0] for _ in range(20)]
    assert all(torch.equal(gradients[0], each) for each in gradients)


@pytest.fixture
def settings_of_torch():
    """Restore what `prepare_device` sets for the whole process, without importing torch's compiler."""
    before = torch.get_deterministic_debug_mode()
    yield
    torch.set_deterministic_debug_mode(before)


@pytest.mark.parametrize(("own", "expected"), [(None, ":4096:8"), (":16:8", ":16:8")])
@pytest.mark.usefixtures("settings_of_torch")
def test_a_gpu_computes_deterministically_and_warns_where_it_cannot(monkeypatch, own, expected):
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setenv(CUBLAS_VARIABLE, own or "")
    if own is None:
        monkeypatch.delenv(CUBLAS_VARIABLE)
    assert prepare_device(Runtime.model_construct(device="auto", threads=0)).type == "cuda"
    assert os.environ[CUBLAS_VARIABLE] == expected
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.deterministic


def test_on_a_cpu_what_is_not_deterministic_is_an_error(settings_of_torch):
    prepare_device(Runtime.model_construct(device="cpu", threads=0))
    assert not torch.is_deterministic_algorithms_warn_only_enabled()


def test_preparing_a_device_does_not_import_the_compiler_of_torch():
    program = (
        "import sys; from fne.core.device import prepare_device; from fne.core.settings import Runtime; "
        "prepare_device(Runtime.model_construct(device='cpu', threads=0)); "
        "print('torch._inductor' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_scarce_memory_are_told_from_others(error, expected):
    assert is_out_of_memory(error) == expected


def test_a_gpu_that_is_not_there_is_replaced_by_the_cpu_or_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert prepare_device(runtime()).type == "cpu"
    with refused("params.yaml: runtime.device is 'cuda', but torch finds no GPU here; use 'auto' or 'cpu'"):
        prepare_device(runtime(device="cuda"))


def test_the_threads_of_a_training_replace_those_of_the_runtime_and_its_processes_divide_them(monkeypatch):
    runtime = Runtime.model_construct(device="cpu", threads=3)
    prepare_device(runtime)
    assert torch.get_num_threads() == 3
    prepare_device(runtime, training_threads=4)
    assert torch.get_num_threads() == 4
    for processes, threads in (("2", 2), ("8", 1)):
        monkeypatch.setenv("WORLD_SIZE", processes)
        prepare_device(runtime, training_threads=4)
        assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("OMP_THREAD_LIMIT", "1", "OMP_THREAD_LIMIT is 1, but training uses 2 threads; unset the variable"),
        ("OMP_DYNAMIC", "TRUE", "OMP_DYNAMIC is true, so the load would decide about results; unset the variable"),
    ],
)  # fmt: skip
def test_an_environment_that_takes_threads_from_a_training_is_refused(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with refused(message):
        use_training_threads(2)
    use_training_threads(1)
