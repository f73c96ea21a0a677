import math

import pytest
import torch

from fne.describing.recurrent_cells import CELLS, Cell

INPUTS, UNITS = 4, 3


def drawn_cell(kind, seed=0, inputs=INPUTS, units=UNITS):
    torch.manual_seed(seed)
    cell = Cell(kind, inputs, units).double()
    for parameter in cell.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    return cell


def reordered(values, units):
    """From torch's order of gates (input, forget, new, output) to ours (input, forget, output, new)."""
    taken, forget, new, shown = values.split(units)
    return torch.cat([taken, forget, shown, new])


def test_lstm_is_that_of_torch():
    reference = torch.nn.LSTMCell(INPUTS, UNITS).double()
    cell = drawn_cell("lstm")
    with torch.no_grad():
        cell.input_map.weight.copy_(reordered(reference.weight_ih, UNITS))
        cell.input_map.bias.copy_(reordered(reference.bias_ih + reference.bias_hh, UNITS))
        cell.state_map.weight.copy_(reordered(reference.weight_hh, UNITS))
    rows = torch.randn(5, INPUTS, dtype=torch.float64)
    hidden, memory = torch.randn(2, 5, UNITS, dtype=torch.float64)
    ours = cell.step((hidden, memory), cell.map_input(rows))
    theirs = reference(rows, (hidden, memory))
    assert torch.allclose(ours[0], theirs[0])
    assert torch.allclose(ours[1], theirs[1])


def test_gru_is_that_of_torch():
    reference = torch.nn.GRUCell(INPUTS, UNITS).double()
    cell = drawn_cell("gru")
    with torch.no_grad():
        for ours, theirs in ((cell.input_map, "ih"), (cell.state_map, "hh")):
            ours.weight.copy_(getattr(reference, f"weight_{theirs}"))
            ours.bias.copy_(getattr(reference, f"bias_{theirs}"))
    rows, hidden = torch.randn(5, INPUTS, dtype=torch.float64), torch.randn(5, UNITS, dtype=torch.float64)
    assert torch.allclose(cell.step((hidden,), cell.map_input(rows))[0], reference(rows, hidden))


def plain_maps(cell, row, hidden):
    """The sums of both maps of one row, with loops."""
    inputs, states = cell.input_map.weight.tolist(), cell.state_map.weight.tolist()
    biases = cell.input_map.bias.tolist()
    return [
        biases[gate]
        + sum(w * x for w, x in zip(inputs[gate], row, strict=True))
        + sum(w * h for w, h in zip(states[gate], hidden, strict=True))
        for gate in range(len(biases))
    ]


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kind", "activation"), [("lstm", math.tanh), ("lstm_relu", lambda x: max(0.0, x))])
def test_lstms_are_those_of_plain_loops(kind, activation, seed):
    cell = drawn_cell(kind, seed)
    row = torch.randn(INPUTS, dtype=torch.float64)
    hidden, memory = torch.randn(2, UNITS, dtype=torch.float64)
    sums = plain_maps(cell, row.tolist(), hidden.tolist())
    expected = []
    for unit in range(UNITS):
        taken, forget, shown = (sigmoid(sums[gate * UNITS + unit]) for gate in range(3))
        new = activation(sums[3 * UNITS + unit])
        expected.append(shown * activation(forget * memory[unit].item() + taken * new))
    found, _ = cell.step((hidden[None], memory[None]), cell.map_input(row[None]))
    assert found[0].tolist() == pytest.approx(expected)


def test_rnn_relu_is_that_of_plain_loops():
    cell = drawn_cell("rnn_relu")
    row, hidden = torch.randn(INPUTS, dtype=torch.float64), torch.randn(UNITS, dtype=torch.float64)
    expected = [max(0.0, value) for value in plain_maps(cell, row.tolist(), hidden.tolist())]
    assert cell.step((hidden[None],), cell.map_input(row[None]))[0][0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", CELLS)
def test_reading_packed_sequences_is_the_same_as_step_by_step(kind):
    cell = drawn_cell(kind, seed=1)
    sizes = [5, 5, 3, 1, 1]
    mapped = torch.randn(sum(sizes), cell.width, dtype=torch.float64, requires_grad=True)
    hidden = torch.randn(5, UNITS, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(sum(sizes), UNITS, dtype=torch.float64)
    found = []
    for read in (cell.read, cell.read_step_by_step):
        state = cell.begin(hidden * 1.5)
        states = read(state, mapped, sizes)
        leaves = [mapped, hidden, cell.state_map.weight]
        found.append([states, *torch.autograd.grad((states * weights).sum(), leaves)])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("kind", CELLS)
def test_gradients_of_reading_are_those_of_finite_differences(kind):
    cell = drawn_cell(kind, seed=2, units=2)
    sizes = [3, 2, 1]
    mapped = torch.randn(sum(sizes), cell.width, dtype=torch.float64, requires_grad=True)
    state = tuple(
        torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
        for _ in cell.begin(torch.zeros(3, 2, dtype=torch.float64))
    )
    weight = cell.state_map.weight

    def read(mapped, weight, *state):
        cell.state_map.weight = torch.nn.Parameter(weight) if not weight.requires_grad else weight
        return cell.read(state, mapped, sizes)

    assert torch.autograd.gradcheck(read, (mapped, weight, *state))


def test_the_forget_bias_is_that_of_the_forget_gate():
    cell = Cell("lstm", INPUTS, UNITS, forget_bias=2.5)
    assert cell.input_map.bias.tolist() == [0] * 3 + [2.5] * 3 + [0] * 6
    assert not Cell("gru", INPUTS, UNITS, forget_bias=2.5).input_map.bias.any()
