"""Where torch computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fne.core.errors import InputError
from fne.core.runtime import Runtime


def prepare_device(runtime: Runtime) -> torch.device:
    """Set what torch computes with and return the device that `runtime` asks for."""
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    # Full precision where full precision is asked for, and the same bits in every run.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    available = torch.cuda.is_available()
    if runtime.device == "cuda" and not available:
        raise InputError(
            "params.yaml: runtime.device is 'cuda', but torch finds no GPU here; use 'auto' or 'cpu'"
        )
    return torch.device("cuda" if available and runtime.device != "cpu" else "cpu")


@contextmanager
def saying_when_memory_ends(remedy: str) -> Iterator[None]:
    """Turn torch's many ways of saying that memory has run out into one that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error):
            raise InputError(f"out of memory; {remedy}") from None
        raise
