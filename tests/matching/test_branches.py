import pytest
import torch
from torch import nn

from fne.core.distributed_layers import Step, SyncBatchNorm
from fne.matching.branches import MeanOfWords, dual_path, mlp, mlp_bn_first
from fne.matching.settings import Branch

BRANCHES = {"dual_path": dual_path, "mlp": mlp, "mlp_bn_first": mlp_bn_first}
SETTINGS = Branch(hidden=[8], dropout=0.5, batch_norm_momentum=0.1, batch_norm_epsilon=1e-5, initial="xavier")


def step_of(total: int) -> Step:
    return Step(torch.Generator().manual_seed(3), total, slice(0, total))


def branch(name: str, seed: int = 0, settings: Branch = SETTINGS) -> nn.Module:
    torch.manual_seed(seed)
    return BRANCHES[name](6, 4, settings).double()


def by_hand(name: str, module: nn.Module, rows: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """The layers one after the other, as the papers list them."""

    def norm(values: torch.Tensor) -> torch.Tensor:
        return (values - values.mean(0)) / (values.var(0, unbiased=False) + 1e-5).sqrt()

    first, second = module.layers
    hidden = first(rows)
    if name == "mlp":  # FC, ReLU, dropout, FC, BN
        return norm(second(hidden.relu() * kept * 2))
    if name == "mlp_bn_first":  # FC, BN, ReLU, dropout, FC
        return second(norm(hidden).relu() * kept * 2)
    return norm(second(norm(hidden).relu()))  # FC, BN, ReLU, FC, BN


@pytest.mark.parametrize("name", BRANCHES)
def test_layers_come_in_the_order_of_their_paper(name):
    module = branch(name)
    rows = torch.randn(7, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept = torch.rand(7, 8, generator=torch.Generator().manual_seed(3)) >= 0.5
    found = module(rows, step_of(7))
    assert torch.allclose(found, by_hand(name, module, rows, kept), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("hidden", [[], [5, 7]])
def test_branches_can_have_any_number_of_hidden_layers(name, hidden):
    module = branch(name, settings=SETTINGS.model_copy(update={"hidden": hidden, "initial": "fan_in"}))
    assert module(torch.randn(5, 6, dtype=torch.float64), step_of(5)).shape == (5, 4)


@pytest.mark.parametrize("name", BRANCHES)
def test_when_encoding_a_row_does_not_depend_on_the_others(name):
    module = branch(name)
    rows = torch.randn(9, 6, dtype=torch.float64)
    module(rows, step_of(9))
    module.eval()
    assert torch.allclose(module(rows)[4:5], module(rows[4:5]), rtol=0, atol=1e-12)


def test_words_are_averaged_and_padding_is_not_read():
    table = nn.Embedding.from_pretrained(torch.arange(12.0).view(4, 3).double())
    encoder = MeanOfWords(table, branch("mlp")).eval()
    encoder.branch = nn.Module()
    encoder.branch.forward = lambda rows, step: rows
    words, lengths = torch.tensor([[1, 3, 0], [2, 0, 0]]), torch.tensor([2, 1])
    assert encoder(words, lengths).tolist() == [[6, 7, 8], [6, 7, 8]]
    words[0, 2], words[1, 1:] = 3, 1
    assert encoder(words, lengths).tolist() == [[6, 7, 8], [6, 7, 8]]


def test_normalization_has_the_momentum_and_epsilon_that_were_asked_for():
    own = {"batch_norm_momentum": 0.05, "batch_norm_epsilon": 1e-3, "initial": "fan_in"}
    module = branch("dual_path", settings=SETTINGS.model_copy(update=own))
    norms = [each for each in module.modules() if isinstance(each, SyncBatchNorm)]
    assert [(each.momentum, each.eps) for each in norms] == [(0.05, 1e-3)] * 2
