import pytest
import torch

from fne.core.processes import ALONE, Processes, joined
from tests.support.processes import in_processes


@pytest.mark.parametrize("total", [0, 1, 2, 5, 12])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_partitions_cover_everything_once_and_in_order(total, count):
    everything = list(range(total))
    parts = [everything[Processes(rank, count).partition(total)] for rank in range(count)]
    assert [each for part in parts for each in part] == everything


def test_without_torchrun_one_process_gets_its_input_back():
    rows, found = torch.ones(2, 3), ({"step": 1}, {"a": torch.zeros(2)})
    with joined(torch.device("cpu")) as processes:
        assert processes is ALONE
    assert ALONE.gather(rows) is rows
    assert ALONE.from_first(found) is found
    assert ALONE.any(True)
    assert not ALONE.any(False)
    layer = torch.nn.Linear(2, 1)
    ALONE.add_gradients(layer.parameters())
    assert layer.weight.grad is None


def test_rows_of_all_processes_come_in_order_and_each_gets_the_gradient_of_its_own():
    def work(processes):
        own = torch.full((processes.rank, 2), float(processes.rank), requires_grad=True)  # 0, 1 and 2 rows
        everything = processes.gather(own)
        (everything * torch.arange(6.0).reshape(3, 2)).sum().backward()
        return everything.tolist(), own.grad.tolist()

    found = in_processes(3, work)
    assert [rows for rows, _ in found] == [[[1, 1], [2, 2], [2, 2]]] * 3
    assert [gradient for _, gradient in found] == [[], [[0, 1]], [[2, 3], [4, 5]]]


def test_gradients_are_summed_also_with_a_process_that_has_none():
    def work(processes):
        layer = torch.nn.Linear(2, 1)
        if not processes.first:
            layer(torch.tensor([[1.0, 2.0]])).sum().backward()
        processes.add_gradients(layer.parameters())
        return layer.weight.grad.tolist(), layer.bias.grad.tolist()

    assert in_processes(3, work) == [([[2, 4]], [2])] * 3


def test_summed_gradients_keep_the_memory_layout_of_their_weights():
    """Fused optimizers read weights and gradients side by side in memory."""

    def work(processes):
        layer = torch.nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
        torch.nn.init.zeros_(layer.weight)
        layer.weight.grad = torch.arange(24.0).reshape(3, 2, 2, 2).to(memory_format=torch.channels_last)
        layer.bias.grad = torch.zeros(3)
        processes.add_gradients(layer.parameters())
        torch.optim.SGD(layer.parameters(), lr=1.0, fused=True).step()
        return layer.weight.grad.stride() == layer.weight.stride(), layer.weight.tolist()

    expected = (-2 * torch.arange(24.0)).reshape(3, 2, 2, 2).tolist()
    assert in_processes(2, work) == [(True, expected)] * 2


@pytest.mark.parametrize("who", [None, 0, 1])
def test_all_processes_know_if_one_is_true(who):
    assert in_processes(2, lambda processes: processes.any(processes.rank == who)) == [who is not None] * 2


def test_the_first_process_sends_json_data_and_tensors_of_any_type_or_nothing():
    sent = {
        "weights": torch.arange(6.0).reshape(2, 3).T,
        "step": torch.tensor(7.0),
        "generator": torch.arange(5, dtype=torch.uint8),
        "double": torch.tensor([1.5], dtype=torch.float64),
    }

    def work(processes):
        assert processes.from_first(None) is None
        found = processes.from_first(({"points": [{"loss": 0.1}]}, sent) if processes.first else None)
        return found[0], {name: (value.dtype, value.numpy()) for name, value in found[1].items()}

    for description, tensors in in_processes(2, work):
        assert description == {"points": [{"loss": 0.1}]}
        for name, value in sent.items():
            assert tensors[name][0] == value.dtype
            assert (tensors[name][1] == value.numpy()).all()


def test_only_the_first_process_logs(capsys):
    Processes(0, 2).log("first", err=True)
    Processes(1, 2).log("second", err=True)
    assert capsys.readouterr().err == "first\n"
