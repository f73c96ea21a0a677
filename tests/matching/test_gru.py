import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.matching.gru import PackedGru, last_states

LENGTHS = [[1], [1, 1], [5, 5], [3, 7, 1, 4, 7, 2], [1, 9]]


def layers() -> tuple[nn.Embedding, nn.GRU]:
    torch.manual_seed(0)
    return nn.Embedding(10, 5).double(), nn.GRU(5, 6).double()


def packed_words(lengths: list[int]) -> PackedSequence:
    """Few different words, so that most of them come again and again."""
    generator = torch.Generator().manual_seed(sum(lengths))
    words = torch.randint(10, (len(lengths), max(lengths)), generator=generator)
    return pack_padded_sequence(words, torch.tensor(lengths), batch_first=True, enforce_sorted=False)


def torch_states(words: nn.Embedding, reader: nn.GRU, packed: PackedSequence) -> torch.Tensor:
    return reader(PackedSequence(words(packed.data), packed.batch_sizes))[1][0]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=7))
@settings(max_examples=50)
def test_states_and_gradients_are_those_of_torch(lengths):
    words, reader = layers()
    packed = packed_words(lengths)
    weights = torch.randn(len(lengths), 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, expected = [], []
    for read, results in ((last_states, found), (torch_states, expected)):
        states = read(words, reader, packed)
        gradients = torch.autograd.grad(states, [*words.parameters(), *reader.parameters()], weights)
        results.extend([states, *gradients])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_gradients_are_those_of_finite_differences(lengths):
    words, reader = layers()
    packed = packed_words(lengths)
    different, positions = torch.unique(packed.data, return_inverse=True)
    vectors = words.weight[different].detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *weights: PackedGru.apply(weights[0], positions, packed.batch_sizes.tolist(), *weights[1:]),
        (vectors, reader.weight_ih_l0, reader.bias_ih_l0, reader.weight_hh_l0, reader.bias_hh_l0),
    )


def test_the_same_inputs_give_the_same_bits():
    words, reader = (layer.float() for layer in layers())
    packed = packed_words([9, 30, 4, 12, 12] * 8)
    results = []
    for _ in range(2):
        states = last_states(words, reader, packed)
        results.append([states, *torch.autograd.grad(states.sum(), [words.weight, *reader.parameters()])])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))
