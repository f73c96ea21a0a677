import math

import pytest
import torch
from torch import nn

from fne.core.distributed_layers import INITIALIZATIONS, Dropout, Step, SyncBatchNorm
from fne.core.processes import Processes
from tests.support.processes import in_processes

ROWS, FEATURES = 11, 3


def step_of(processes: Processes, seed: int = 5, total: int = ROWS) -> Step:
    start, stop = (total * each // processes.count for each in (processes.rank, processes.rank + 1))
    return Step(torch.Generator().manual_seed(seed), total, slice(start, stop), processes)


ALONE = step_of(Processes())


def batch() -> torch.Tensor:
    # A large mean, which a variance from sums of squares would not survive.
    return torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1e4


def normalize_twice(step: Step, rows: torch.Tensor) -> list[torch.Tensor]:
    """Two training steps of a normalization with weights that are not ones; all that they leave behind."""
    norm = SyncBatchNorm(FEATURES, eps=1e-3, momentum=0.05).double()
    nn.init.constant_(norm.weight, 1.5)
    own = rows[step.rows].clone().requires_grad_()
    norm(own * 2 + 1, step)
    out = norm(own, step)
    weights = torch.arange(rows.numel(), dtype=torch.float64).view_as(rows).sin()
    (out * weights[step.rows]).sum().backward()
    return [out.detach(), own.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]


def test_a_single_process_normalizes_as_torch_does_bit_for_bit():
    ours, theirs = (
        SyncBatchNorm(FEATURES, momentum=0.05).double(),
        nn.BatchNorm1d(FEATURES, momentum=0.05).double(),
    )
    for _ in range(2):
        assert torch.equal(ours(batch(), ALONE), theirs(batch()))
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(ours.eval()(batch()), theirs.eval()(batch()))


@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_normalize_as_one_does_forward_and_backward(count):
    rows = batch()
    expected = normalize_twice(ALONE, rows)
    found = in_processes(
        count, lambda processes: [each.tolist() for each in normalize_twice(step_of(processes), rows)]
    )
    parts = [[torch.tensor(each, dtype=torch.float64) for each in part] for part in found]
    for place in (0, 1):  # rows and their gradients stand one after the other
        together = torch.cat([part[place] for part in parts])
        assert torch.allclose(together, expected[place], rtol=0, atol=1e-10)
    for place in (2, 3):  # gradients of weights are added by the trainer
        together = torch.stack([part[place] for part in parts]).sum(dim=0)
        assert torch.allclose(together, expected[place], rtol=0, atol=1e-10)
    for place in (4, 5):  # every process has the running statistics of all rows
        for part in parts:
            assert torch.allclose(part[place], expected[place], rtol=1e-12, atol=1e-10)


def test_a_process_without_rows_takes_part():
    rows = batch()[:2]

    def work(processes):
        start = 0 if processes.rank < 1 else processes.rank - 1
        step = Step(torch.Generator(), 2, slice(start, processes.rank), processes)
        return normalize_twice(step, rows)[0].tolist()

    expected, found = normalize_twice(Step(torch.Generator(), 2, slice(0, 2)), rows)[0], in_processes(3, work)
    assert [len(each) for each in found] == [0, 1, 1]
    together = torch.tensor([row for part in found for row in part], dtype=torch.float64)
    assert torch.allclose(together, expected, rtol=0, atol=1e-10)


def test_one_row_cannot_be_normalized():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        SyncBatchNorm(FEATURES)(torch.zeros(1, FEATURES), ALONE)

    def work(processes):
        with pytest.raises(ValueError, match="at least 2 rows while training, got 1"):
            SyncBatchNorm(FEATURES)(torch.zeros(processes.rank, FEATURES), step_of(processes, total=1))
        return True

    assert in_processes(2, work) == [True, True]


def test_dropout_draws_for_the_whole_batch_whatever_the_number_of_processes():
    rows = torch.ones(ROWS, 50)
    whole = Dropout(0.75)(rows, step_of(Processes()))
    parts = [
        Dropout(0.75)(rows[step.rows], step) for step in (step_of(Processes(rank, 3)) for rank in range(3))
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert set(whole.unique().tolist()) == {0.0, 4.0}
    assert whole.mean().item() == pytest.approx(1, abs=0.15)


def test_draws_follow_the_generator_and_each_other():
    def two(seed):
        step, dropout = step_of(Processes(), seed), Dropout(0.5)
        return dropout(torch.ones(ROWS, 50), step), dropout(torch.ones(ROWS, 50), step)

    (one, other), (again, _) = two(1), two(1)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one, two(2)[0])


def test_nothing_is_dropped_when_encoding_or_with_a_fraction_of_zero():
    rows = torch.ones(2, 4)
    assert Dropout(0.5).eval()(rows) is rows
    assert Dropout(0.0)(rows) is rows


@pytest.mark.parametrize("module", [Dropout(0.5), SyncBatchNorm(4)])
def test_training_without_a_step_is_refused(module):
    with pytest.raises(ValueError, match="needs the step"):
        module(torch.ones(2, 4))


@pytest.mark.parametrize("fraction", [-0.1, 1.0, math.nan])
def test_dropout_is_a_fraction(fraction):
    with pytest.raises(ValueError, match="at least 0 and less than 1"):
        Dropout(fraction)


@pytest.mark.parametrize(("name", "bound"), [("fan_in", math.sqrt(3 / 300)), ("xavier", math.sqrt(6 / 500))])
def test_weights_are_drawn_uniformly_and_biases_are_zero(name, bound):
    torch.manual_seed(0)
    layer = nn.Linear(300, 200)
    INITIALIZATIONS[name](layer)
    assert bound * 0.999 < layer.weight.abs().max().item() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert not layer.bias.any()
