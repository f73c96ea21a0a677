import itertools

import numpy as np
import pytest
import torch

from fne.describing.decoder import INJECTIONS, Decoder, draw_dropout, pack
from fne.describing.losses import word_losses
from fne.describing.recurrent_cells import CELLS

FAMILY = list(itertools.product(CELLS, INJECTIONS))
RECTIFIED = [*((*each, False) for each in FAMILY), *(("rnn_relu", inject, True) for inject in INJECTIONS)]
OUTPUTS, CONDITION, WORD, UNITS = 6, 5, 4, 3
TARGETS = torch.tensor([[2, 3, 0, 0], [4, 5, 2, 0], [1, 0, 0, 0], [3, 0, 0, 0]])
LENGTHS = torch.tensor([3, 4, 1, 2])


def drawn_decoder(cell, inject, seed=0, rectified=False):
    torch.manual_seed(seed)
    decoder = Decoder(OUTPUTS, CONDITION, WORD, UNITS, cell=cell, inject=inject, rectified=rectified).double()
    for parameter in decoder.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    return decoder


def conditions(seed=0):
    return torch.randn(4, CONDITION, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def losses(decoder, rows, dropout=None):
    packed = pack(TARGETS, LENGTHS)
    states = decoder.hidden_states(rows, packed, dropout)
    return word_losses(states, decoder.output.weight, decoder.output.bias, packed.data)


@pytest.mark.parametrize(("cell", "inject", "rectified"), RECTIFIED)
def test_reading_a_true_sequence_gives_what_writing_it_step_by_step_gives(cell, inject, rectified):
    decoder, rows = drawn_decoder(cell, inject, rectified=rectified), conditions()
    expected = 0.0
    for row, targets, length in zip(rows, TARGETS, LENGTHS, strict=True):
        logits, state = decoder.begin(row[None])
        for target in targets[:length]:
            expected -= logits.log_softmax(dim=1)[0, target].item()
            logits, state = decoder.advance(state, target[None])
    assert losses(decoder, rows).sum().item() == pytest.approx(expected)


@pytest.mark.parametrize(("cell", "inject", "rectified"), RECTIFIED)
def test_a_prepared_decoder_gives_the_same_logits(cell, inject, rectified):
    decoder, rows = drawn_decoder(cell, inject, rectified=rectified), conditions()
    prepared = decoder.prepared()
    words = torch.tensor([1, 2, 3, 4])
    (logits, state), (others, other) = decoder.begin(rows), prepared.begin(rows)
    assert torch.allclose(logits, others)
    assert torch.allclose(decoder.advance(state, words)[0], prepared.advance(other, words)[0])
    assert decoder.table is None
    assert prepared.output is decoder.output


@pytest.mark.parametrize(("cell", "inject"), FAMILY)
def test_gradients_are_those_of_finite_differences(cell, inject):
    decoder, rows = drawn_decoder(cell, inject, seed=3), conditions().requires_grad_()
    assert torch.autograd.gradcheck(lambda given: losses(decoder, given), rows)
    for name, parameter in decoder.named_parameters():
        if name not in {"condition.weight", "cell.state_map.weight", "words"}:
            continue
        gradient = torch.autograd.grad(losses(decoder, rows).sum(), parameter)[0]
        place = (0, 0)
        with torch.no_grad():
            values = []
            for shift in (1e-6, -1e-6):
                parameter[place] += shift
                values.append(losses(decoder, rows).sum().item())
                parameter[place] -= shift
        assert gradient[place].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-6), name


def test_two_steps_of_the_multimodal_rnn_are_those_of_its_equations():
    """The image enters at the first step only: h1 = f(x1 + W h0 + b + bv), h2 = f(x2 + W h1 + b)."""
    decoder, rows = drawn_decoder("rnn_relu", "bias"), conditions()
    image = decoder.condition(rows)
    start = decoder.words[decoder.start].expand(4, -1)
    first = torch.relu(decoder.cell.input_map(start) + image)
    second = torch.relu(decoder.cell.input_map(decoder.words[[2] * 4]) + decoder.cell.state_map(first))
    logits, state = decoder.begin(rows)
    assert torch.allclose(logits, decoder.output(first))
    assert torch.allclose(decoder.advance(state, torch.tensor([2] * 4))[0], decoder.output(second))
    everywhere = drawn_decoder("rnn_relu", "every")
    everywhere.load_state_dict(decoder.state_dict())
    logits, state = everywhere.begin(rows)
    third = torch.relu(decoder.cell.input_map(decoder.words[[2] * 4]) + decoder.cell.state_map(first) + image)
    assert torch.allclose(everywhere.advance(state, torch.tensor([2] * 4))[0], decoder.output(third))


def test_a_rectified_decoder_passes_the_image_and_the_words_through_the_activation_too():
    decoder, rows = drawn_decoder("rnn_relu", "bias", rectified=True), conditions()
    cell, words = decoder.cell, decoder.words
    weight, bias = cell.input_map.weight, cell.input_map.bias
    start, second = (torch.relu(words[number] @ weight.T + bias) for number in (decoder.start, 2))
    first = torch.relu(start + torch.relu(decoder.condition(rows)))
    logits, state = decoder.begin(rows)
    assert torch.allclose(logits, decoder.output(first))
    after = torch.relu(second + cell.state_map(first))
    assert torch.allclose(decoder.advance(state, torch.tensor([2] * 4))[0], decoder.output(after))


def test_the_state_of_an_image_is_the_first_hidden_state():
    decoder, rows = drawn_decoder("gru", "state"), conditions()
    start = decoder.cell.map_input(decoder.words[[decoder.start] * 4])
    expected = decoder.cell.step((decoder.condition(rows),), start)[0]
    assert torch.allclose(decoder.begin(rows)[0], decoder.output(expected))


def test_an_image_as_a_word_is_read_before_start():
    decoder, rows = drawn_decoder("gru", "input"), conditions()
    zero = (torch.zeros(4, UNITS, dtype=torch.float64),)
    image = decoder.cell.step(zero, decoder.cell.map_input(decoder.condition(rows)))
    expected = decoder.cell.step(image, decoder.cell.map_input(decoder.words[[decoder.start] * 4]))[0]
    assert torch.allclose(decoder.begin(rows)[0], decoder.output(expected))


def test_an_image_at_the_output_leaves_the_recurrence_alone():
    decoder = drawn_decoder("lstm", "output")
    one, other = decoder.begin(conditions(0))[1], decoder.begin(conditions(1))[1]
    assert torch.equal(one.cell[0], other.cell[0])
    assert not torch.equal(one.output, other.output)


def test_before_training_words_have_their_frequencies():
    torch.manual_seed(0)
    decoder = Decoder(OUTPUTS, CONDITION, WORD, UNITS, cell="lstm", inject="state").double()
    data = pack(TARGETS, LENGTHS).data.numpy()
    counts = np.maximum(np.bincount(data, minlength=6), 1)
    frequencies = counts / counts.sum()
    decoder.start_biases(torch.from_numpy(np.log(frequencies)))
    assert losses(decoder, conditions()).mean().item() == pytest.approx(-np.log(frequencies[data]).mean())


def test_the_content_of_the_padding_does_not_matter():
    decoder, rows = drawn_decoder("lstm", "state"), conditions()
    packed = pack(TARGETS.masked_fill(torch.arange(4) >= LENGTHS[:, None], 5), LENGTHS)
    expected = decoder.hidden_states(rows, pack(TARGETS, LENGTHS))
    assert torch.equal(decoder.hidden_states(rows, packed), expected)


def test_dropout_is_zero_or_the_inverse_of_what_is_kept():
    dropout = draw_dropout(4, 50, WORD, UNITS, 0.25, torch.Generator().manual_seed(0))
    assert dropout.words.shape == (4, 50, WORD)
    assert dropout.states.shape == (4, 50, UNITS)
    assert dropout.words.unique().tolist() == [0, pytest.approx(1 / 0.75)]
    assert dropout.words.mean().item() == pytest.approx(1, abs=0.1)


def test_dropout_of_ones_changes_nothing_and_other_dropout_does():
    decoder, rows = drawn_decoder("lstm", "bias"), conditions()
    ones = draw_dropout(4, 4, WORD, UNITS, 0.0, torch.Generator())
    assert torch.allclose(losses(decoder, rows, ones), losses(decoder, rows))
    half = draw_dropout(4, 4, WORD, UNITS, 0.5, torch.Generator().manual_seed(1))
    assert not torch.allclose(losses(decoder, rows, half), losses(decoder, rows))
