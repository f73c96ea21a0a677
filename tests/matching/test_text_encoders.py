import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from fne.core.errors import InputError
from fne.matching.text_encoders import TEXT_ENCODERS

WORDS = torch.tensor([[3, 7, 2, 9], [4, 1, 0, 0], [5, 0, 0, 0], [1, 1, 4, 0]])
LENGTHS = torch.tensor([4, 2, 1, 3])


def new_encoder(name: str) -> nn.Module:
    torch.manual_seed(0)
    return TEXT_ENCODERS[name](12, 5, 8).double()


def run_cell(cell: nn.Module, vectors: list[torch.Tensor]) -> torch.Tensor:
    """The last state of a caption, word by word."""
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
def test_recurrent_encoders_are_those_of_the_equations_step_by_step(name, cell):
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


def test_a_bag_of_words_is_the_mean_of_its_words_mapped():
    encoder = new_encoder("bow")
    for row, (words, length) in enumerate(zip(WORDS, LENGTHS, strict=True)):
        mean = sum(encoder.words.weight[word] for word in words[:length]) / length
        torch.testing.assert_close(encoder(WORDS, LENGTHS)[row], encoder.map.weight @ mean + encoder.map.bias)


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_every_weight_learns(name):
    encoder = new_encoder(name)
    encoder(WORDS, LENGTHS).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in encoder.parameters())


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_weights_are_named_as_torch_names_them(name):
    assert sorted(new_encoder(name).state_dict()) == [
        "reader.bias_hh_l0",
        "reader.bias_ih_l0",
        "reader.weight_hh_l0",
        "reader.weight_ih_l0",
        "words.weight",
    ]


def test_the_gru_is_the_same_on_a_device_where_torch_reads():
    """Where there is no GPU, at least its way of reading runs."""
    encoder = new_encoder("gru")
    packed = pack_padded_sequence(WORDS, LENGTHS, batch_first=True, enforce_sorted=False)
    states = encoder.read_with_torch(packed)[packed.unsorted_indices]
    torch.testing.assert_close(states, encoder(WORDS, LENGTHS))


@pytest.mark.parametrize("name", ["bigru", "bilstm"])
def test_an_odd_number_of_units_cannot_be_halved(name):
    with pytest.raises(InputError) as caught:
        TEXT_ENCODERS[name](12, 5, 7)
    assert caught.value.message == (
        f"train.embed_dim is 7; text encoder '{name}' needs an even number, half of it for each direction"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_no_normal_numbers_are_drawn(name, monkeypatch):
    """They differ between generations of CPUs."""
    monkeypatch.setattr(torch.Tensor, "normal_", None)
    TEXT_ENCODERS[name](12, 5, 8)
