"""A stand-in for Ray, and an environment without its settings."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fne.extraction.ray import cluster

NODES = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}]


class CallRecorder(SimpleNamespace):
    """Records the calls of `init` and `shutdown`."""

    def __init__(self, error: Exception | None = None, nodes: list[dict[str, Any]] = NODES) -> None:
        super().__init__(calls=[], nodes=lambda: nodes)
        self.error = error

    def init(self, **options: object) -> None:
        """Record the options, and install a signal handler, as Ray does."""
        self.calls.append(options)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.error:
            raise self.error

    def shutdown(self) -> None:
        """Record the call."""
        self.calls.append("shutdown")


@pytest.fixture
def clean_environment(monkeypatch):
    """Remove Ray's settings from the environment; restore them and the number of threads after the test."""
    for name in (cluster.ADDRESS, *cluster.ENVIRONMENT):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
