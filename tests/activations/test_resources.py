import pytest

from fne.activations.resources import Shares, share_out
from fne.core.errors import InputError
from tests.core.test_runtime import runtime

SMALL, LARGE, GPUS = {"CPU": 2.0}, {"CPU": 9.0, "memory": 1e9}, {"CPU": 16.0, "GPU": 4.0}


@pytest.mark.parametrize(
    ("nodes", "changes", "threads", "expected"),
    [
        ([SMALL], {}, 2, Shares(workers=1, nodes=1, cpus=2, gpus=0)),
        ([SMALL], {"threads": 1}, 2, Shares(workers=2, nodes=1, cpus=1, gpus=0)),
        ([SMALL, LARGE], {}, 8, Shares(workers=5, nodes=2, cpus=2, gpus=0)),
        ([LARGE, LARGE], {}, 4, Shares(workers=4, nodes=2, cpus=4, gpus=0)),
        ([SMALL, LARGE], {"threads": 4}, 8, Shares(workers=2, nodes=1, cpus=4, gpus=0)),
        ([{}, SMALL], {}, 8, Shares(workers=1, nodes=1, cpus=2, gpus=0)),
        ([SMALL, GPUS], {"workers": 2}, 8, Shares(workers=4, nodes=1, cpus=2, gpus=1)),
        ([GPUS], {"workers": 99}, 8, Shares(workers=4, nodes=1, cpus=4, gpus=1)),
        ([GPUS], {"workers": 0}, 8, Shares(workers=4, nodes=1, cpus=1, gpus=1)),
        ([GPUS], {"device": "cpu"}, 8, Shares(workers=2, nodes=1, cpus=8, gpus=0)),
    ],
)
def test_workers_take_what_the_nodes_have(nodes, changes, threads, expected):
    assert share_out(nodes, runtime(**changes), threads) == expected


def test_shares_are_said_in_words():
    assert str(Shares(1, 1, 2, 0)) == "1 worker on 1 node, each with 2 CPUs"
    assert str(Shares(4, 2, 1, 1)) == "4 workers on 2 nodes, each with 1 CPU and 1 GPU"
    assert (Shares(1, 1, 2, 0).device, Shares(4, 2, 1, 1).device) == ("cpu", "cuda")


def test_a_cluster_without_the_gpu_asked_for_is_refused():
    with pytest.raises(InputError) as caught:
        share_out([SMALL], runtime(device="cuda"), 2)
    assert caught.value.message == (
        "params.yaml: runtime.device is 'cuda', but no node of the Ray cluster has a GPU; use 'auto' or 'cpu'"
    )


@pytest.mark.parametrize(("nodes", "largest"), [([SMALL, {"CPU": 3.0}], 3), ([], 0)])
def test_more_threads_than_any_node_has_are_refused(nodes, largest):
    with pytest.raises(InputError) as caught:
        share_out(nodes, runtime(threads=4), 2)
    assert caught.value.message == (
        f"no node of the Ray cluster has 4 CPUs, the largest has {largest}; lower runtime.threads in "
        "params.yaml, or start larger nodes"
    )
