"""The Ray cluster that computes: the one that `RAY_ADDRESS` names, or one of this machine's own.

Ray starts the workers, starts them again when they die, and ends them with this
process, however that ends. What it says about that stays in its log files.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from fne.activations.crew import Crew
from fne.activations.engines import Engine, Recipe, Say
from fne.activations.resources import share_out
from fne.core.errors import InputError
from fne.core.stopping import TERMINATED

ADDRESS = "RAY_ADDRESS"
# Read by Ray when it is imported: no report of its use over the network, and no lines about workers on
# our output, which tells of them in its own words.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
# Of a cluster of our own; a few work units are all that ever waits there.
OBJECT_BYTES = 256 * 2**20
# A cluster that takes longer to answer is not there.
ANSWER_SECONDS = 10.0


@contextmanager
def open_cluster(recipe: Recipe, say: Say) -> Iterator[Engine]:
    """Yield an engine that computes on Ray; nothing of it is left running afterwards.

    Raises:
        InputError: if Ray is not installed, if no cluster answers, or if it has no place for a worker.
    """
    ray = _import()
    before = signal.getsignal(signal.SIGTERM)
    try:
        _connect(ray)
        # Ray has put a handler of its own there, whose exit code nobody knows.
        signal.signal(signal.SIGTERM, _terminate)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        shares = share_out(nodes, recipe.runtime, torch.get_num_threads())
        # Nothing is computed here, but the threads decide the size of a batch and may be part of the kind.
        torch.set_num_threads(max(1, shares.cpus))
        say(f"Ray cluster {_where()}: {shares}")
        runtime = recipe.runtime.model_copy(update={"device": shares.device, "threads": shares.cpus})
        crew = Crew(ray, replace(recipe, runtime=runtime), shares, say)
        yield Engine(torch.device(shares.device), True, crew.compute, lambda *_: None)
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)


def _import() -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
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
            _knock(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                num_gpus=torch.cuda.device_count(),
                object_store_memory=OBJECT_BYTES,
                # Whoever reaches a cluster's ports may run programs there.
                _node_ip_address="127.0.0.1",
            )
    except (OSError, RuntimeError, ValueError) as error:
        if not address:
            raise
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{ADDRESS} is '{address}', but no Ray cluster can be used there ({reason}); start one with "
            f"`ray start --head`, or unset {ADDRESS}"
        ) from None


def _knock(address: str) -> None:
    """See whether anybody listens there: Ray itself would go on trying for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()


def _where() -> str:
    return f"at {os.environ[ADDRESS]}" if os.environ.get(ADDRESS) else "of this machine"


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(TERMINATED)
