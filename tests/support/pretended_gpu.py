"""A GPU that is pretended on the CPU: code takes the path of a GPU, and its mistakes are found.

Inside `pretended_gpu()`, the device `cuda` is accepted. Its tensors have true values in memory of the CPU,
and say that they are on the GPU. What a GPU would refuse or be slow with is an error:

- `MixedDevicesError`: an operation on tensors of both devices, or with random numbers of the other device;
- `HostReadError`: the host reads a value from the GPU and waits for it, other than by `core.device.download`.

Reads by `download` are counted. The device is recorded per storage, so views and gradients have it too. Not
pretended: streams, pinned memory, kernels that exist for one device only, the memory of the GPU, and rounding.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype as group_tensors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from fne.core import device as core_device

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
aten = torch.ops.aten

# Operations whose results have a size, or are numbers, that the host must know: it waits for them.
READS = {
    aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten._unique2, aten.unique_dim,
    aten.unique_consecutive, aten.repeat_interleave,
}  # fmt: skip
# Operations that take or return one tensor on the CPU whatever the others are on, by its position.
LENGTHS = {aten._pack_padded_sequence: (1, 1), aten._pack_padded_sequence_backward: (2, None)}
TO_HOST = {Tensor.cpu: "cpu()", Tensor.tolist: "tolist()"}
NEVER_ON_GPU = {Tensor.numpy: "numpy()", Tensor.__array__: "__array__()"}


class MixedDevicesError(Exception):
    """An operation on tensors of both devices."""


class HostReadError(Exception):
    """The host waits for a value of the GPU."""


class PretendedGpu:
    """Where tensors are, and how often `download` was called."""

    def __init__(self) -> None:
        self.downloads = 0
        self.downloading = False
        self.frames: list[torch.device] = []  # where the functions that are running put new tensors
        # A weak reference keeps the address of a storage from being used again.
        self._placed: dict[int, tuple[StorageWeakRef, torch.device]] = {}

    def device(self, tensor: Tensor) -> torch.device | None:
        """Return where a tensor is; None if torch made it by itself, without saying where."""
        return self._placed.get(tensor.untyped_storage()._cdata, (None, CPU))[1]

    def place(self, tensor: Tensor, device: torch.device | None) -> Tensor:
        """Record where a tensor is."""
        storage = tensor.untyped_storage()
        self._placed[storage._cdata] = StorageWeakRef(storage), device
        return tensor

    def common_device(self, what: object, tensors: list[Tensor]) -> torch.device | None:
        """Return where all tensors are; a single number of the CPU may meet tensors of the GPU."""
        places = {self.device(each) for each in tensors if each.ndim} - {None}
        if len(places) > 1:
            raise MixedDevicesError(f"{what} with tensors of the CPU and of the GPU")
        numbers = {self.device(each) for each in tensors if not each.ndim} - {None}
        if places == {CPU} and GPU in numbers:
            raise MixedDevicesError(f"{what} with a number of the GPU and tensors of the CPU")
        return next(iter(places), GPU if GPU in numbers else next(iter(numbers), None))

    def read(self, what: object) -> None:
        """Refuse a read of the host."""
        if not self.downloading:
            raise HostReadError(f"{what} lets the host wait for the GPU; use core.device.download")

    def download(self, tensor: Tensor) -> Tensor:
        """Stands for `core.device.download`."""
        self.downloads += self.device(tensor) == GPU
        self.downloading, before = True, self.downloading
        try:
            return tensor.cpu()
        finally:
            self.downloading = before


class _Functions(TorchFunctionMode):
    """Translates the device of calls, and what tensors say about theirs."""

    def __init__(self, gpu: PretendedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        gpu, kwargs = self.gpu, dict(kwargs or {})
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return args[0].untyped_storage().device if args[0].is_meta else gpu.device(args[0]) or CPU
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return gpu.device(args[0]) == GPU
        if func in (torch.device, torch._C._nn._parse_to):
            return func(*args, **kwargs)
        if func is Tensor.backward:  # runs code of ours, for which the mode must hold
            with self:
                run = torch.autograd.Variable._execution_engine.run_backward
                return run(
                    args, (torch.ones_like(args[0]),), False, False, (),
                    allow_unreachable=True, accumulate_grad=True,
                )  # fmt: skip
        if func is torch._cudnn_rnn_flatten_weight:  # puts weights side by side, for cuDNN only
            return None
        leaves = tree_leaves((args, kwargs))
        tensors = [each for each in leaves if isinstance(each, Tensor) and not each.is_meta]
        own = (gpu.device(args[0]) or CPU) if args and any(args[0] is each for each in tensors) else None
        if own == GPU and func in NEVER_ON_GPU:
            raise TypeError(f"{NEVER_ON_GPU[func]} of a tensor on the GPU")
        if own == GPU and func in TO_HOST:
            gpu.read(TO_HOST[func])
        if func is Tensor.pin_memory:
            return args[0].clone()
        named = next((found for each in leaves if (found := _device(each)) is not None), None)
        if func is Tensor.cpu:
            named = CPU
        if func is Tensor.to and named is None and len(args) > 1 and isinstance(args[1], Tensor):
            named = gpu.device(args[1])
        if named is not None and named.type == "cuda" and kwargs.get("generator") is not None:
            raise MixedDevicesError(f"{func.__name__} on the GPU with a generator of the CPU")
        args, kwargs = tree_map(lambda each: each if _device(each) is None else CPU, (args, kwargs))
        target = named or next((GPU for each in tensors if gpu.device(each) == GPU), CPU)
        gpu.frames.append(target)
        try:
            result = func(*args, **kwargs)
        finally:
            gpu.frames.pop()
        if named is not None and own is None and isinstance(result, Tensor) and not result.is_meta:
            return gpu.place(result, named)  # a new tensor; torch.tensor() makes it where no mode sees it
        if named is not None and own is not None and named != own and result is not None:
            if own == GPU and not kwargs.get("non_blocking"):
                gpu.read(func.__name__)
            return gpu.place(result.clone() if result is args[0] else result, named)
        return result


class _Operations(TorchDispatchMode):
    """Checks every operation, those of gradients too, and records where its results are."""

    def __init__(self, gpu: PretendedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        gpu, packet = self.gpu, func.overloadpacket
        lengths_in, lengths_out = LENGTHS.get(packet, (None, None))
        checked = [each for position, each in enumerate(args) if position != lengths_in]
        tensors = [each for each in tree_leaves((checked, kwargs)) if isinstance(each, Tensor)]
        if any(each.is_meta for each in tensors):
            return func(*args, **kwargs)
        copies = packet in (aten.copy_, aten._to_copy)
        where = gpu.device(args[0]) if copies else gpu.common_device(packet, tensors)
        if packet is aten.copy_ and gpu.device(args[1]) == GPU and where == CPU:
            gpu.read(packet)
        masked = packet in (aten.index, aten.index_put_) and any(
            isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in args[1]
        )
        if where == GPU and (packet in READS or masked):
            gpu.read(packet)
        if where == GPU and any(isinstance(each, torch.Generator) for each in tree_leaves((args, kwargs))):
            raise MixedDevicesError(f"{packet} on the GPU with a generator of the CPU")
        result = func(*args, **kwargs)
        if not tensors:
            where = gpu.frames[-1] if gpu.frames else None
        known = {each.untyped_storage()._cdata for each in tensors}
        outputs = result if isinstance(result, tuple | list) else [result]
        for position, each in enumerate(outputs):
            new = isinstance(each, Tensor) and not each.is_meta and each.untyped_storage()._cdata not in known
            if new:
                gpu.place(each, CPU if position == lengths_out else where)
        return result


@contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """Pretend that there is a GPU while the block runs; yield what it records."""
    gpu, autocast = PretendedGpu(), torch.autocast

    def on_cpu(device_type: str, *args: Any, **kwargs: Any) -> torch.autocast:
        return autocast("cpu", *args, **kwargs)

    def grouped(tensors: list[list[Tensor | None]], with_indices: bool = False) -> dict[Any, Any]:
        found = group_tensors(tensors, with_indices)
        return {
            (lists[0][0].device, dtype): (lists, indices) for (_, dtype), (lists, indices) in found.items()
        }

    with ExitStack() as stack:
        # torch asks for the devices of lists of tensors where they cannot be pretended.
        for module in (clip_grad, optimizer):
            stack.enter_context(patch.object(module, group_tensors.__name__, grouped))
        stack.enter_context(patch.object(torch, "autocast", on_cpu))
        stack.enter_context(patch.object(torch.cuda, "_lazy_init", lambda: None))
        for name in _modules_with_download():
            stack.enter_context(patch(f"{name}.download", gpu.download))
        stack.enter_context(_Functions(gpu))
        stack.enter_context(_Operations(gpu))
        yield gpu


def _modules_with_download() -> list[str]:
    import sys

    own = [name for name in sys.modules if name.split(".")[0] == "fne"]
    return [name for name in own if getattr(sys.modules[name], "download", None) is core_device.download]


def _device(value: object) -> torch.device | None:
    """Return the device that an argument names, if it names one."""
    if isinstance(value, str) and (value == "cpu" or value.startswith("cuda")):
        value = torch.device(value)
    if not isinstance(value, torch.device):
        return None
    return GPU if value.type == "cuda" else value
