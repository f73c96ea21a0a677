"""The device that torch computes on: its numerical settings, transfers, and what to do when memory runs out.

Other modules move tensors with `upload` and `download` only. So a test can take the path of a GPU on a
machine that has none, and every read that makes the host wait for the GPU is a call of `download`.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.core.settings import Runtime

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")  # the limits of a container, if there is one
# The workspace of cuBLAS with which its results do not depend on how work is spread over streams.
CUBLAS_VARIABLE, CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"

# What torch and cuDNN write in errors of the type RuntimeError.
OUT_OF_MEMORY = (
    "allocate memory",
    "out of memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_gpu(device: torch.device) -> bool:
    """Return whether a device is a GPU: computes beside the host, with memory of its own."""
    return device.type == "cuda"


def has_gpu() -> bool:
    """Return whether torch finds a GPU."""
    return torch.cuda.is_available()


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Send a tensor to a device, without waiting where that is a GPU."""
    return tensor.pin_memory().to(device, non_blocking=True) if is_gpu(device) else tensor.to(device)


def download(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU; the host waits until a GPU has computed it."""
    return tensor.cpu()


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process may still use where `device` keeps its tensors.

    On a CPU: what the system can free without swapping, within the container's limit, per process.
    """
    if is_gpu(device):
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_system_memory(), _container_memory()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _system_memory() -> int:
    try:
        lines = MEMINFO.read_text().splitlines()
        [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return 1024 * int(available)
    except (OSError, ValueError):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_memory() -> int:
    """Return what is left of the limit of a control group; without a limit, more than any machine has."""
    try:
        limit = int((CGROUP / "memory.max").read_text())  # "max" if there is none
        used = int((CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        # Cached files count as used, but they make way.
        return max(0, limit - used + int(statistics.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 1 << 62


def synchronize(device: torch.device) -> None:
    """Wait until a device has computed everything that is queued."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """Return the model of a GPU, and `cpu` for a CPU."""
    return torch.cuda.get_device_name(device) if is_gpu(device) else "cpu"


def reset_peak_memory(device: torch.device) -> None:
    """Let `peak_memory` of a GPU count from now on."""
    if is_gpu(device):
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return the most bytes used at once: on a GPU since the last reset, on a CPU by this process."""
    if is_gpu(device):
        return int(torch.cuda.max_memory_allocated(device))
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def use_training_threads(threads: int) -> None:
    """Let torch train with `threads` threads, divided among torchrun's processes, whatever the cores.

    The number decides how sums are divided, and so the last bits of every step, which grow. Torch passes it
    on to OpenMP and MKL. A training run computes no products with NumPy, whose BLAS has threads of its own,
    and does not start those of numba, which would change the number for torch.
    """
    own = max(1, threads // int(os.environ.get("WORLD_SIZE", "1")))
    limit, dynamic = (os.environ.get(f"OMP_{name}", "") for name in ("THREAD_LIMIT", "DYNAMIC"))
    if limit.isdigit() and int(limit) < own:
        raise InputError(f"OMP_THREAD_LIMIT is {limit}, but training uses {own} threads; unset the variable")
    if own > 1 and dynamic.strip().lower() == "true":
        raise InputError("OMP_DYNAMIC is true, so the load would decide about results; unset the variable")
    torch.set_num_threads(own)


def prepare_device(runtime: Runtime, training_threads: int = 0) -> torch.device:
    """Configure torch and return the device; `training_threads` replace `runtime.threads`."""
    if training_threads:
        use_training_threads(training_threads)
    elif runtime.threads:
        torch.set_num_threads(runtime.threads)
    # No silent loss of precision, and the same bits in every run.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    available = has_gpu()
    if runtime.device == "cuda" and not available:
        raise InputError(
            "params.yaml: runtime.device is 'cuda', but torch finds no GPU here; use 'auto' or 'cpu'"
        )
    device = torch.device("cuda" if available and runtime.device != "cpu" else "cpu")
    if is_gpu(device):
        # cuBLAS reads this when it is first used.
        os.environ.setdefault(CUBLAS_VARIABLE, CUBLAS_WORKSPACE)
    # On a CPU, several threads would add up the gradient of `table[rows]` in any order; on a GPU, atomic
    # additions would. Some kernels have no deterministic version on a GPU. There torch only warns: a
    # training with other last bits is better than one that stops.
    # `use_deterministic_algorithms` sets the same, but first imports torch's compiler for more than a second.
    torch.set_deterministic_debug_mode("warn" if is_gpu(device) else "error")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return device


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is one of the various ways in which torch says that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)


@contextmanager
def explain_out_of_memory(remedy: str) -> Iterator[None]:
    """Turn torch's various out-of-memory errors into an `InputError` that ends with `remedy`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise InputError(f"out of memory; {remedy}") from None
        raise
