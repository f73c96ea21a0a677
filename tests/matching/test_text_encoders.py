import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.core.errors import InputError
from fne.matching.settings import Gru
from fne.matching.text_encoders import TEXT_ENCODERS, last_states
from fne.matching.word_table import word_table
from tests.support.variants import settings_of

WORDS = torch.tensor([[3, 7, 2, 9], [4, 1, 0, 0], [5, 0, 0, 0], [1, 1, 4, 0]])
LENGTHS = torch.tensor([4, 2, 1, 3])


def new_encoder(name: str) -> nn.Module:
    torch.manual_seed(0)
    encoder = TEXT_ENCODERS[name](word_table(12, 5), 8, settings_of(name))
    return encoder.double().eval()


def run_cell(cell: nn.Module, vectors: list[torch.Tensor]) -> torch.Tensor:
    """Compute the last state of a caption word by word."""
    state = None
    for vector in vectors:
        state = cell(vector[None], state)
    return (state[0] if isinstance(state, tuple) else state)[0]


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_a_caption_does_not_depend_on_its_neighbors_or_its_padding(name):
    encoder = new_encoder(name)
    alone = encoder(torch.tensor([[3, 4]]), torch.tensor([2]))
    together = encoder(torch.tensor([[1, 2, 3, 4], [3, 4, 9, 9]]), torch.tensor([4, 2]))
    assert together.shape == (2, 8)
    torch.testing.assert_close(alone[0], together[1])


@pytest.mark.parametrize(
    ("name", "cell"),
    [("gru", nn.GRUCell), ("lstm", nn.LSTMCell), ("bigru", nn.GRUCell), ("bilstm", nn.LSTMCell)],
)
def test_recurrent_encoders_equal_torch_cells_run_word_by_word(name, cell):
    encoder = new_encoder(name)
    found = encoder(WORDS, LENGTHS)
    for row, (words, length) in enumerate(zip(WORDS, LENGTHS, strict=True)):
        vectors = list(encoder.words(words[:length]))
        expected = []
        for suffix, read in [("_l0", vectors), ("_l0_reverse", vectors[::-1])]:
            state = encoder.reader.state_dict()
            if f"weight_ih{suffix}" in state:
                one = cell(5, len(state[f"weight_hh{suffix}"][0])).double()
                one.load_state_dict({key: state[f"{key}{suffix}"] for key in one.state_dict()})
                expected.append(run_cell(one, read))
        torch.testing.assert_close(found[row], torch.cat(expected))


def test_a_bag_of_words_is_the_linear_map_of_the_mean_word_vector():
    encoder = new_encoder("bow")
    for row, (words, length) in enumerate(zip(WORDS, LENGTHS, strict=True)):
        mean = sum(encoder.words.weight[word] for word in words[:length]) / length
        torch.testing.assert_close(encoder(WORDS, LENGTHS)[row], encoder.map.weight @ mean + encoder.map.bias)


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_every_weight_gets_a_gradient(name):
    encoder = new_encoder(name)
    encoder(WORDS, LENGTHS).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in encoder.parameters())


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_weights_are_named_as_torch_names_them(name):
    reader = [f"reader.{kind}_{way}_l0" for kind in ("bias", "weight") for way in ("hh", "ih")]
    assert sorted(new_encoder(name).state_dict()) == [*reader, "words.weight"]


def test_the_gru_equals_the_implementation_of_torch_for_the_gpu():
    """Run the code path for the GPU on the CPU."""
    encoder = new_encoder("gru")
    packed = pack_padded_sequence(WORDS, LENGTHS, batch_first=True, enforce_sorted=False)
    states = encoder.read_with_torch(packed)[packed.unsorted_indices]
    torch.testing.assert_close(states, encoder(WORDS, LENGTHS))


@pytest.mark.parametrize("name", ["bigru", "bilstm"])
def test_an_odd_number_of_units_is_refused_for_two_directions(name):
    with pytest.raises(InputError, match=f"train.embed_dim is 7; text encoder '{name}' needs an even number"):
        TEXT_ENCODERS[name](word_table(12, 5), 7, settings_of(name))


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_no_normal_numbers_are_drawn(name, monkeypatch):
    """They differ between generations of CPUs."""
    monkeypatch.setattr(torch.Tensor, "normal_", None)
    new_encoder(name)


@pytest.mark.parametrize("word_dim", [5, 8])
def test_orthogonal_weights_are_those_of_the_published_code(word_dim):
    torch.manual_seed(0)
    reader = TEXT_ENCODERS["gru"](word_table(12, word_dim), 8, Gru(initial="orthogonal")).reader
    identity = torch.eye(8)
    for part in reader.weight_hh_l0.chunk(3):
        torch.testing.assert_close(part @ part.T, identity, atol=1e-5, rtol=0)
    for part in reader.weight_ih_l0.chunk(3):
        if word_dim == 8:  # square
            torch.testing.assert_close(part @ part.T, identity, atol=1e-5, rtol=0)
        else:
            assert 0.05 < part.abs().max() <= 0.1
    assert not reader.bias_ih_l0.any()
    assert not reader.bias_hh_l0.any()


def layers() -> tuple[nn.Embedding, nn.GRU]:
    torch.manual_seed(0)
    return nn.Embedding(10, 5).double(), nn.GRU(5, 6).double()


def packed_words(lengths: list[int]) -> PackedSequence:
    """Return few distinct words, so that most of them are repeated."""
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


def test_the_same_inputs_give_the_same_bits():
    words, reader = (layer.float() for layer in layers())
    packed = packed_words([9, 30, 4, 12, 12] * 8)
    results = []
    for _ in range(2):
        states = last_states(words, reader, packed)
        results.append([states, *torch.autograd.grad(states.sum(), [words.weight, *reader.parameters()])])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))
