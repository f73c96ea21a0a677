"""Several processes that work together, forked from the test: real ones, connected by gloo."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from fne.core.processes import Processes, joined


def in_processes(count: int, function: Callable[[Processes], Any]) -> list[Any]:
    """Call `function` in each of `count` processes; return what it returned, by rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    children = [
        context.Process(target=_work, args=(rank, count, port, function, sender))
        for rank, (_, sender) in enumerate(pipes)
    ]
    for child, (_, sender) in zip(children, pipes, strict=True):
        child.start()
        sender.close()
    results = [receiver.recv() for receiver, _ in pipes]
    for child in children:
        child.join()
        assert child.exitcode == 0
    return results


def _work(rank: int, count: int, port: int, function: Callable[[Processes], Any], sender: Connection) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    with joined(torch.device("cpu")) as processes:
        sender.send(function(processes))
