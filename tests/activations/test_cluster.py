import os
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fne.activations import cluster
from fne.activations.cluster import open_cluster
from fne.activations.engines import Recipe
from fne.core.errors import InputError
from tests.core.test_runtime import runtime

RECIPE = Recipe(None, Path("weights"), runtime())
NODES = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}]


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    """What Ray is told through the environment ends with the test, and so does the number of threads."""
    for name in (cluster.ADDRESS, *cluster.SETTINGS):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Ray(SimpleNamespace):
    """A Ray that only notes how it is called."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(calls=[], nodes=lambda: NODES)
        self.error = error

    def init(self, **options):
        self.calls.append(options)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray sets one of its own
        if self.error:
            raise self.error

    def shutdown(self):
        self.calls.append("shutdown")


def opened(monkeypatch, ray: Ray, recipe: Recipe = RECIPE):
    monkeypatch.setitem(sys.modules, "ray", ray)
    said: list[str] = []
    with open_cluster(recipe, said.append) as engine:
        return engine, said


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError) as caught, open_cluster(RECIPE, print):
        pass
    assert caught.value.message == (
        "runtime.engine is 'ray', but Ray is not installed; install it with pip install -e '.[ray]'"
    )
    assert caught.value.exit_code == 2


def test_a_cluster_of_our_own_is_silent_and_closed_to_others(monkeypatch):
    ray = Ray()
    engine, said = opened(monkeypatch, ray)
    options, ended = ray.calls
    assert (options["address"], options["include_dashboard"], options["log_to_driver"]) == (
        "local",
        False,
        False,
    )
    assert options["_node_ip_address"] == "127.0.0.1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert ended == "shutdown"
    assert (engine.device, engine.elsewhere) == (torch.device("cpu"), True)
    assert said == ["Ray cluster of this machine: 2 workers on 1 node, each with 1 CPU"]


@pytest.fixture
def listening():
    """An address where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_the_address_in_the_environment_is_used(monkeypatch, listening):
    monkeypatch.setenv("RAY_ADDRESS", listening)
    ray = Ray()
    _, said = opened(monkeypatch, ray)
    assert ray.calls[0]["address"] == listening
    assert said[0].startswith(f"Ray cluster at {listening}: ")


def test_a_driver_needs_no_gpu(monkeypatch):
    monkeypatch.setattr(
        Ray, "nodes", lambda self: [{"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}}], raising=False
    )
    ray = Ray()
    ray.nodes = lambda: [{"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}}]
    engine, _ = opened(monkeypatch, ray)
    assert (engine.device, engine.elsewhere) == (torch.device("cuda"), True)


@pytest.mark.parametrize("address", ["{}", "ray://{}"])
def test_an_address_where_nobody_listens_is_said_at_once(monkeypatch, address):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        place = address.format(f"127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("RAY_ADDRESS", place)
        with pytest.raises(
            InputError, match=rf"^RAY_ADDRESS is '{place}', but .* \(\[Errno 111\] Connection refused\); "
        ):
            opened(monkeypatch, ray := Ray())
    assert ray.calls == ["shutdown"]


def test_a_cluster_that_cannot_be_used_is_said_with_what_to_do(monkeypatch, listening):
    monkeypatch.setenv("RAY_ADDRESS", listening)
    ray = Ray(ConnectionError("Could not connect\nto it"))
    with pytest.raises(InputError) as caught:
        opened(monkeypatch, ray)
    assert caught.value.message == (
        f"RAY_ADDRESS is '{listening}', but no Ray cluster can be used there (Could not connect); start one with "
        "`ray start --head`, or unset RAY_ADDRESS"
    )
    assert ray.calls[-1] == "shutdown"


def test_a_fault_of_a_cluster_of_our_own_is_not_hidden(monkeypatch):
    with pytest.raises(RuntimeError, match="no memory"):
        opened(monkeypatch, Ray(RuntimeError("no memory")))


def test_termination_shuts_the_cluster_down(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", ray := Ray())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, open_cluster(RECIPE, print):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 143
    assert ray.calls[-1] == "shutdown"
    assert signal.getsignal(signal.SIGTERM) == before
