"""The one adapter to torch.distributed: the processes that run a stage together.

There is one unless torchrun has started more. All run the same code on the same data and divide the expensive
work; only the first logs and writes. With one process, every function here returns its input.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn

from fne.core.terminal import say


@dataclass(frozen=True)
class Processes:
    """The rank of this process, counted from 0, and the number of processes."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that logs and writes."""
        return self.rank == 0

    def log(self, text: str, err: bool = False) -> None:
        """Print a line, in the first process only."""
        if self.first:
            say(text, err=err)

    def partition(self, total: int) -> slice:
        """Return which of `total` consecutive items this process works on.

        Example:
            >>> [Processes(rank, 3).partition(4) for rank in range(3)]
            [slice(0, 1, None), slice(1, 2, None), slice(2, 4, None)]
        """
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, in the order of the ranks.

        Gradients flow back into own rows only, and are complete: every process computes with all rows.
        """
        gathered: Tensor = rows if self.count == 1 else _Gathered.apply(rows, self)
        return gathered

    def share_gradient(self, rows: Tensor) -> Tensor:
        """Return `rows`; their gradient becomes the sum over all processes, which have parts of it."""
        shared: Tensor = rows if self.count == 1 else _Shared.apply(rows, self)
        return shared

    def add(self, values: Tensor) -> None:
        """Replace `values` by their sum over all processes, in place."""
        if self.count > 1:
            distributed.all_reduce(values)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their sums over all processes."""
        if self.count == 1:
            return
        wanted = list(parameters)
        for each in wanted:
            # A process without a part of the batch has none.
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad
        gradients = [each.grad for each in wanted if each.grad is not None]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        self.add(together)
        parts = torch.split(together, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            # In place: fused optimizers need the memory layout of the weights, such as `channels_last`.
            gradient.copy_(part.view(gradient.shape))

    def any(self, own: bool) -> bool:
        """Return whether `own` is true in any process."""
        if self.count == 1:
            return own
        counted = torch.tensor(int(own))
        self.add(counted)
        return bool(counted)

    def from_first(
        self, found: tuple[dict[str, Any], dict[str, Tensor]] | None
    ) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return what the first process has found: JSON-compatible data, and tensors on the CPU."""
        if self.count == 1:
            return found
        description, tensors = found or (None, {})
        layout = [(name, str(each.dtype).split(".")[1], list(each.shape)) for name, each in tensors.items()]
        text = bytearray(json.dumps([description, layout]), "utf-8")
        content = _received(torch.frombuffer(text, dtype=torch.uint8)).numpy().tobytes()
        description, layout = json.loads(content)
        if description is None:
            return None
        received = {}
        for name, dtype, shape in layout:
            own = tensors.get(name, torch.empty(shape, dtype=getattr(torch, dtype)))
            received[name] = own.contiguous()
            distributed.broadcast(received[name], src=0)
        return description, received


ALONE = Processes()


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """Connect the processes that torchrun has started while the block runs; yield this one."""
    if "WORLD_SIZE" not in os.environ:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


class _Gathered(torch.autograd.Function):
    """All-gather with gradients: rows (own, dim) to rows (all, dim)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, processes: Processes) -> Tensor:
        lengths = [torch.tensor(0) for _ in range(processes.count)]
        distributed.all_gather(lengths, torch.tensor(len(rows)))
        counts = [int(length) for length in lengths]
        start = sum(counts[: processes.rank])
        ctx.own = slice(start, start + len(rows))
        # All processes must exchange tensors of one size, so shorter ones are padded.
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.own], None


class _Shared(torch.autograd.Function):
    """The identity; its gradient is summed over all processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        ctx.processes.add(total)
        return total, None


def _received(own: Tensor) -> Tensor:
    """Return the bytes that the first process sends."""
    length = torch.tensor(len(own))
    distributed.broadcast(length, src=0)
    content = own if distributed.get_rank() == 0 else torch.empty(int(length), dtype=torch.uint8)
    distributed.broadcast(content, src=0)
    return content
