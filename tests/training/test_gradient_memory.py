import torch
from torch import nn
from torch.nn import functional

from fne.training.gradient_memory import linear, look_up, release


def test_gradients_are_those_of_torch_and_the_next_ones_are_in_the_same_memory():
    generator = torch.Generator().manual_seed(0)
    table, weight, bias = (
        nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((9, 4), (3, 4), (3,))
    )
    places = []
    for numbers in ([1, 7], [0, 1, 8], [5]):
        distinct = torch.tensor(numbers)
        loss = functional.linear(table[distinct], weight, bias).square().sum()
        expected = torch.autograd.grad(loss, (table, weight, bias))
        linear(look_up(table, distinct), weight, bias).square().sum().backward()
        torch.testing.assert_close([table.grad, weight.grad, bias.grad], list(expected))
        places.append((table.grad.data_ptr(), weight.grad.data_ptr()))
        release([table, weight, bias])
        assert table.grad is weight.grad is bias.grad is None
    assert len(set(places)) == 1


def test_a_weight_that_is_used_twice_has_the_sum_of_both_gradients():
    weight, rows = nn.Parameter(torch.ones(2, 2)), torch.eye(2)
    for _ in range(3):
        release([weight])
        (linear(rows, weight, None) + 2 * linear(rows, weight, None)).sum().backward()
        assert weight.grad.tolist() == [[3, 3], [3, 3]]
