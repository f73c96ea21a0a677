"""The Ray cluster: the connection to it, and the allocation of its resources to workers.

The cluster is the one that `RAY_ADDRESS` names, or a new one on this machine. Ray starts the workers,
restarts them when they die, and stops them when this process ends for any reason.

If the cluster has GPUs, they compute, with one worker per GPU. Otherwise each worker gets `runtime.threads`
CPUs; with 0, as many as torch would use here, or as many as the smallest node has if these are fewer. Few
workers with many threads need less memory than many with few, because each has a copy of the weights.
"""

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fne.core.errors import InputError
from fne.core.settings import Runtime
from fne.core.signals import exit_on_sigterm

ADDRESS = "RAY_ADDRESS"
# Ray reads these when it is imported: no usage reports over the network, and no lines of workers in
# the output of this process.
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
# For a new cluster; its object store only ever holds a few work units.
OBJECT_STORE_BYTES = 256 * 2**20
CONNECT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Allocation:
    """The number of workers, the number of nodes they run on, and the resources of each worker."""

    workers: int
    nodes: int
    cpus: int
    gpus: int

    @property
    def device(self) -> str:
        """The device that computes."""
        return "cuda" if self.gpus else "cpu"

    def __str__(self) -> str:
        has = [_count(self.cpus, "CPU"), *(_count(each, "GPU") for each in [self.gpus] if each)]
        return (
            f"{_count(self.workers, 'worker')} on {_count(self.nodes, 'node')}, each with {' and '.join(has)}"
        )


@contextmanager
def connect() -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster; disconnect and stop all workers afterwards."""
    ray = _import()
    with exit_on_sigterm() as install, ExitStack() as stack:
        stack.callback(ray.shutdown)
        _connect(ray)
        install()  # replaces Ray's own handler, whose exit code is not documented
        yield ray


def cluster_name() -> str:
    """Return where the cluster is, for messages."""
    return f"at {os.environ[ADDRESS]}" if os.environ.get(ADDRESS) else "on this machine"


def allocate_workers(nodes: Sequence[Mapping[str, float]], runtime: Runtime, threads: int) -> Allocation:
    """Allocate the `CPU` and `GPU` of nodes to workers; `threads` are those that torch would use here."""
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    if runtime.device == "cuda" and not any(gpus):
        raise InputError(
            "params.yaml: runtime.device is 'cuda', but no node of the Ray cluster has a GPU; "
            "use 'auto' or 'cpu'"
        )
    if any(gpus) and runtime.device != "cpu":
        # CPUs for reading images, but no more than each node has per GPU, so that all GPUs are used.
        spare = min(
            int(node.get("CPU", 0)) // count for node, count in zip(nodes, gpus, strict=True) if count
        )
        return Allocation(
            sum(gpus), sum(1 for count in gpus if count), min(max(1, runtime.workers), spare), 1
        )
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    wanted = runtime.threads or min([threads, *(count for count in cpus if count)])
    places = [count // wanted for count in cpus]
    if not any(places):
        raise InputError(
            f"no node of the Ray cluster has {_count(wanted, 'CPU')}, the largest has "
            f"{max(cpus, default=0)}; lower runtime.threads in params.yaml, or start larger nodes"
        )
    return Allocation(sum(places), sum(1 for each in places if each), wanted, 0)


def _import() -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # optional
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise InputError(
            "runtime.engine is 'ray', but Ray is not installed; install it with pip install -e '.[ray]'"
        ) from None
    return ray


def _connect(ray: Any) -> None:
    address = os.environ.get(ADDRESS)
    try:
        if address:
            _check_reachable(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                num_gpus=torch.cuda.device_count(),
                object_store_memory=OBJECT_STORE_BYTES,
                # Anyone who can reach the ports of a cluster can run programs on it.
                _node_ip_address="127.0.0.1",
            )
    except (OSError, RuntimeError, ValueError) as error:
        if not address:
            raise
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{ADDRESS} is '{address}', but the Ray cluster there cannot be used ({reason}); start one with "
            f"`ray start --head`, or unset {ADDRESS}"
        ) from None


def _check_reachable(address: str) -> None:
    """Open a connection to the address, because Ray itself would retry for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_SECONDS).close()


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
