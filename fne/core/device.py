"""The device that torch computes on, its numerical settings, and a clear message when memory runs out."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fne.core.errors import InputError
from fne.core.params import Runtime

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")  # of a container, if there is one


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process may still use where `device` keeps its tensors.

    On a CPU, that is what the system can free without swapping, within the limit of the container, divided
    by the number of processes that torchrun has started on this machine.
    """
    if device.type == "cuda":
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


def prepare_device(runtime: Runtime) -> torch.device:
    """Configure torch and return the device that `runtime` asks for.

    Raises:
        InputError: if that is a GPU and torch finds none.
    """
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    # No silent loss of precision, and the same bits in every run.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    available = torch.cuda.is_available()
    if runtime.device == "cuda" and not available:
        raise InputError(
            "params.yaml: runtime.device is 'cuda', but torch finds no GPU here; use 'auto' or 'cpu'"
        )
    device = torch.device("cuda" if available and runtime.device != "cpu" else "cpu")
    # On a CPU, several threads would add up the gradient of `table[rows]` in any order.
    torch.use_deterministic_algorithms(device.type == "cpu")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return device


@contextmanager
def explain_out_of_memory(remedy: str) -> Iterator[None]:
    """Turn torch's various out-of-memory errors into an `InputError` that ends with `remedy`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error):
            raise InputError(f"out of memory; {remedy}") from None
        raise
