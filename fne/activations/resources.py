"""How the processors of a cluster are shared out among workers.

A GPU has a worker of its own, and where there are GPUs, they compute. Without any, a worker
has as many CPUs as `runtime.threads` says; with 0, as many as torch would use here, or
as the smallest node has. Few large workers, each with many threads, take less memory
than many small ones, each with a copy of the weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fne.core.errors import InputError
from fne.core.runtime import Runtime


@dataclass(frozen=True)
class Shares:
    """How many workers there are, on how many nodes, and what each of them has."""

    workers: int
    nodes: int
    cpus: int
    gpus: int

    @property
    def device(self) -> str:
        """What computes."""
        return "cuda" if self.gpus else "cpu"

    def __str__(self) -> str:
        has = [_count(self.cpus, "CPU"), *(_count(each, "GPU") for each in [self.gpus] if each)]
        return (
            f"{_count(self.workers, 'worker')} on {_count(self.nodes, 'node')}, each with {' and '.join(has)}"
        )


def share_out(nodes: Sequence[Mapping[str, float]], runtime: Runtime, threads: int) -> Shares:
    """Share out the resources of nodes (`CPU` and `GPU`, as Ray counts them).

    Args:
        nodes: the resources of each node.
        runtime: what is asked for.
        threads: the number of threads that torch would use here.

    Raises:
        InputError: if no worker finds a place.
    """
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    if runtime.device == "cuda" and not any(gpus):
        raise InputError(
            "params.yaml: runtime.device is 'cuda', but no node of the Ray cluster has a GPU; "
            "use 'auto' or 'cpu'"
        )
    if any(gpus) and runtime.device != "cpu":
        # Those that read images; but no GPU shall wait for CPUs that its node does not have.
        spare = min(
            int(node.get("CPU", 0)) // count for node, count in zip(nodes, gpus, strict=True) if count
        )
        return Shares(sum(gpus), sum(1 for count in gpus if count), min(max(1, runtime.workers), spare), 1)
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    wanted = runtime.threads or min([threads, *(count for count in cpus if count)])
    places = [count // wanted for count in cpus]
    if not any(places):
        raise InputError(
            f"no node of the Ray cluster has {_count(wanted, 'CPU')}, the largest has "
            f"{max(cpus, default=0)}; lower runtime.threads in params.yaml, or start larger nodes"
        )
    return Shares(sum(places), sum(1 for each in places if each), wanted, 0)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
