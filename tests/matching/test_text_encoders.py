import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.prefix_gru import PrefixGru, prefixes
from fne.matching.settings import ROWS, Gru
from fne.matching.text_encoders import TEXT_ENCODERS, last_states
from fne.matching.word_table import pad_captions, word_table
from tests.support.variants import settings_of

WORDS = torch.tensor([[3, 7, 2, 9], [4, 1, 0, 0], [5, 0, 0, 0], [1, 1, 4, 0]])
LENGTHS = torch.tensor([4, 2, 1, 3])


def new_encoder(name: str) -> nn.Module:
    torch.manual_seed(0)
    encoder = TEXT_ENCODERS[name](word_table(12, 5), 8, settings_of(name))
    return encoder.double().eval()


OF_WORDS = [name for name in TEXT_ENCODERS if name not in ROWS]


def run_cell(cell: nn.Module, vectors: list[torch.Tensor]) -> torch.Tensor:
    """Compute the last state of a caption word by word."""
    state = None
    for vector in vectors:
        state = cell(vector[None], state)
    return (state[0] if isinstance(state, tuple) else state)[0]


@pytest.mark.parametrize("name", OF_WORDS)
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


@pytest.mark.parametrize("name", OF_WORDS)
def test_every_weight_gets_a_gradient(name):
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


def test_the_gru_equals_the_implementation_of_torch_for_the_gpu():
    """Run the code path for the GPU on the CPU."""
    encoder = new_encoder("gru")
    packed = pack_padded_sequence(WORDS, LENGTHS, batch_first=True, enforce_sorted=False)
    states = encoder.read_with_torch(packed)[packed.unsorted_indices]
    torch.testing.assert_close(states, encoder(WORDS, LENGTHS))


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


def test_captions_differ_more_at_the_start_with_orthogonal_weights():
    words = torch.randint(0, 500, (100, 12), generator=torch.Generator().manual_seed(0))
    cosines = {}
    for initial in ("orthogonal", "torch"):
        torch.manual_seed(0)
        encoder = TEXT_ENCODERS["gru"](word_table(500, 300), 256, Gru(initial=initial))
        with torch.no_grad():
            states = nn.functional.normalize(encoder(words, torch.full((100,), 12)), dim=1)
        cosines[initial] = float((states @ states.T).fill_diagonal_(0).sum() / (100 * 99))
    assert cosines["orthogonal"] < cosines["torch"] - 0.2


BATCH_LENGTHS = [[1], [1, 1], [5, 5], [3, 7, 1, 4, 7, 2], [1, 9]]


def layers() -> tuple[nn.Embedding, nn.GRU]:
    torch.manual_seed(0)
    return nn.Embedding(10, 5).double(), nn.GRU(5, 6).double()


def captions_of(lengths: list[int], distinct: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return captions with so few distinct words that words, beginnings and whole captions are repeated."""
    generator = torch.Generator().manual_seed(sum(lengths))
    words = torch.randint(distinct, (len(lengths), max(lengths) + 2), generator=generator)
    return words, torch.tensor(lengths)


def torch_states(
    words: nn.Embedding, reader: nn.GRU, captions: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    packed = pack_padded_sequence(captions, lengths, batch_first=True, enforce_sorted=False)
    states = reader(PackedSequence(words(packed.data), packed.batch_sizes))[1][0]
    return states[packed.unsorted_indices]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=9), st.integers(1, 10))
@settings(max_examples=100)
def test_states_and_gradients_are_those_of_torch(lengths, distinct):
    words, reader = layers()
    captions = captions_of(lengths, distinct)
    weights = torch.randn(len(lengths), 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, expected = [], []
    for read, results in ((last_states, found), (torch_states, expected)):
        states = read(words, reader, *captions)
        gradients = torch.autograd.grad(states, [*words.parameters(), *reader.parameters()], weights)
        results.extend([states, *gradients])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("distinct", [2, 10])
@pytest.mark.parametrize("lengths", BATCH_LENGTHS)
def test_gradients_are_those_of_finite_differences(lengths, distinct):
    words, reader = layers()
    captions, counts = captions_of(lengths, distinct)
    found = prefixes(captions.numpy(), counts.numpy())
    numbers, positions = torch.unique(found.words, return_inverse=True)
    vectors = words.weight[numbers].detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *weights: PrefixGru.apply(weights[0], positions, found.depths, *weights[1:]),
        (vectors, reader.weight_ih_l0, reader.bias_ih_l0, reader.weight_hh_l0, reader.bias_hh_l0),
    )


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=9))
def test_every_beginning_of_a_caption_is_read_once(captions):
    padded, lengths = pad_captions([np.array(each) for each in captions])
    found = prefixes(padded.numpy(), lengths.numpy())
    beginnings, going_on = {}, [()] * len(captions)
    for number, depth in enumerate(found.depths):
        words = found.words[depth.nodes].tolist()
        parents = range(len(words)) if depth.parents is None else depth.parents.tolist()
        here = [(*going_on[parent], word) for parent, word in zip(parents, words, strict=True)]
        for end, caption in zip(depth.ends.tolist(), depth.captions.tolist(), strict=True):
            beginnings[caption] = here[end]
        going_on = here if depth.going_on is None else [here[each] for each in depth.going_on.tolist()]
        assert here == sorted({tuple(each[: number + 1]) for each in captions if len(each) > number})
        assert depth.states.stop - depth.states.start == len(going_on)
    assert [beginnings[number] for number in range(len(captions))] == [tuple(each) for each in captions]


def test_the_same_inputs_give_the_same_bits():
    words, reader = (layer.float() for layer in layers())
    captions = captions_of([9, 30, 4, 12, 12] * 8, 10)
    results = []
    for _ in range(2):
        states = last_states(words, reader, *captions)
        results.append([states, *torch.autograd.grad(states.sum(), [words.weight, *reader.parameters()])])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_an_encoder_of_rows_is_the_image_head_of_its_name(name):
    encoder, rows = new_encoder(name), torch.randn(4, 5, dtype=torch.float64)
    head = IMAGE_HEADS[name.replace("rows_", "").replace("rows", "linear_bias")](5, 8, settings_of(name))
    head.double().eval().load_state_dict(encoder.head.state_dict())
    found = encoder(rows, torch.ones(4, dtype=torch.int64))
    torch.testing.assert_close(found, head(rows))
    found.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in encoder.parameters())
