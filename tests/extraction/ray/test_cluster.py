import os
import signal
import socket
import sys

import pytest

from fne.extraction.ray.cluster import Allocation, allocate_workers, cluster_name, connect
from tests.support.ray import CallRecorder, clean_environment
from tests.support.refusals import refused
from tests.support.settings import runtime

pytestmark = pytest.mark.usefixtures(clean_environment.__name__)

SMALL, LARGE, GPUS = {"CPU": 2.0}, {"CPU": 9.0, "memory": 1e9}, {"CPU": 16.0, "GPU": 4.0}


@pytest.mark.parametrize(
    ("nodes", "changes", "threads", "expected"),
    [
        ([SMALL], {}, 2, Allocation(workers=1, nodes=1, cpus=2, gpus=0)),
        ([SMALL], {"threads": 1}, 2, Allocation(workers=2, nodes=1, cpus=1, gpus=0)),
        ([SMALL, LARGE], {}, 8, Allocation(workers=5, nodes=2, cpus=2, gpus=0)),
        ([LARGE, LARGE], {}, 4, Allocation(workers=4, nodes=2, cpus=4, gpus=0)),
        ([SMALL, LARGE], {"threads": 4}, 8, Allocation(workers=2, nodes=1, cpus=4, gpus=0)),
        ([{}, SMALL], {}, 8, Allocation(workers=1, nodes=1, cpus=2, gpus=0)),
        ([SMALL, GPUS], {"workers": 2}, 8, Allocation(workers=4, nodes=1, cpus=2, gpus=1)),
        ([GPUS], {"workers": 99}, 8, Allocation(workers=4, nodes=1, cpus=4, gpus=1)),
        ([GPUS], {"workers": 0}, 8, Allocation(workers=4, nodes=1, cpus=1, gpus=1)),
        ([GPUS], {"device": "cpu"}, 8, Allocation(workers=2, nodes=1, cpus=8, gpus=0)),
    ],
)
def test_workers_get_the_resources_of_the_nodes(nodes, changes, threads, expected):
    assert allocate_workers(nodes, runtime(**changes), threads) == expected


def test_an_allocation_is_printed_as_text():
    assert str(Allocation(1, 1, 2, 0)) == "1 worker on 1 node, each with 2 CPUs"
    assert str(Allocation(4, 2, 1, 1)) == "4 workers on 2 nodes, each with 1 CPU and 1 GPU"
    assert (Allocation(1, 1, 2, 0).device, Allocation(4, 2, 1, 1).device) == ("cpu", "cuda")


@pytest.mark.parametrize(
    ("nodes", "changes", "parts"),
    [
        (
            [SMALL],
            {"device": "cuda"},
            ["params.yaml: runtime.device is 'cuda', but no node of", "use 'auto' or 'cpu'"],
        ),
        (
            [SMALL, {"CPU": 3.0}],
            {"threads": 4},
            ["no node of the Ray cluster has 4 CPUs, the largest has 3; lower "],
        ),
        (
            [],
            {"threads": 4},
            ["has 4 CPUs, the largest has 0; lower runtime.threads in params.yaml, or start "],
        ),
    ],
)
def test_a_cluster_without_the_requested_gpu_or_threads_is_refused(nodes, changes, parts):
    with refused(*parts):
        allocate_workers(nodes, runtime(**changes), 2)


def connected(monkeypatch, ray: CallRecorder) -> CallRecorder:
    monkeypatch.setitem(sys.modules, "ray", ray)
    with connect() as module:
        assert module is ray
    return ray


@pytest.fixture
def listening():
    """An address with a server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused("runtime.engine is 'ray', but Ray is not installed; ", "pip install -e '.[ray]'"), connect():
        pass


def test_a_new_cluster_prints_nothing_and_is_not_reachable_from_other_machines(monkeypatch):
    options, last = connected(monkeypatch, CallRecorder()).calls
    assert options["address"] == "local"
    assert (options["include_dashboard"], options["log_to_driver"]) == (False, False)
    assert options["_node_ip_address"] == "127.0.0.1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert last == "shutdown"
    assert cluster_name() == "on this machine"


def test_the_address_in_the_environment_is_used(monkeypatch, listening):
    monkeypatch.setenv("RAY_ADDRESS", listening)
    assert connected(monkeypatch, CallRecorder()).calls[0]["address"] == listening
    assert cluster_name() == f"at {listening}"


@pytest.mark.parametrize("address", ["{}", "ray://{}"])
def test_an_address_without_a_server_is_reported_immediately(monkeypatch, address):
    ray = CallRecorder()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        place = address.format(f"127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("RAY_ADDRESS", place)
        with refused(f"RAY_ADDRESS is '{place}', but ", "([Errno 111] Connection refused); "):
            connected(monkeypatch, ray)
    assert ray.calls == ["shutdown"]


def test_a_cluster_that_cannot_be_used_is_reported_with_a_remedy(monkeypatch, listening):
    monkeypatch.setenv("RAY_ADDRESS", listening)
    ray = CallRecorder(ConnectionError("Could not connect\nto it"))
    said = f"RAY_ADDRESS is '{listening}', but the Ray cluster there cannot be used (Could not connect); start one "
    with refused(said, "or unset RAY_ADDRESS"):
        connected(monkeypatch, ray)
    assert ray.calls[-1] == "shutdown"


def test_an_error_of_a_new_cluster_is_not_hidden(monkeypatch):
    with pytest.raises(RuntimeError, match="no memory"):
        connected(monkeypatch, CallRecorder(RuntimeError("no memory")))


def test_termination_shuts_the_cluster_down(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", ray := CallRecorder())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, connect():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 143
    assert ray.calls[-1] == "shutdown"
    assert signal.getsignal(signal.SIGTERM) == before
