import math
from collections import Counter

import pytest
import torch

from fne.describing.sampling import sample
from tests.describing.test_beam import END, UNKNOWN, Chain, drawn_conditions, drawn_decoder, log_probabilities

TABLE = [[0.0] * 3, [0.0] * 3, [1.0, -1.0, 0.5], [-math.inf, 0.7, 1.2]]  # START comes last


def total_of(model, condition, words, ended):
    """The log probability of a sequence, output by output."""
    logits, state = model.begin(condition[None])
    total = 0.0
    for word in [*words, *[END] * ended]:
        total += log_probabilities(logits)[word].item()
        logits, state = model.advance(state, torch.tensor([word]))
    return total


@pytest.mark.parametrize("inject", ["state", "every", "output"])
def test_every_drawn_sequence_has_the_probability_of_its_outputs(inject):
    decoder, conditions = drawn_decoder(0, 6, inject=inject), drawn_conditions(1, 4)
    found = sample(decoder, conditions, beam=5, max_length=7, never=[UNKNOWN], length_power=0.5)
    for condition, drawn in zip(conditions, found, strict=True):
        assert len(drawn) == 5
        for each in drawn:
            assert UNKNOWN not in each.words
            expected = total_of(decoder, condition, each.words, each.ended)
            assert each.log_probability == pytest.approx(expected)
            assert each.score == pytest.approx(expected / (len(each.words) + 1) ** 0.5)
            assert each.ended or len(each.words) == 7
    assert (
        sample(decoder, conditions[2:], beam=5, max_length=7, never=[UNKNOWN], length_power=0.5) == found[2:]
    )


def test_outputs_are_as_frequent_as_they_are_probable():
    [drawn] = sample(Chain(TABLE), torch.zeros(1, 3), beam=4000, max_length=9, never=[1])
    counts = Counter(each.words for each in drawn)
    # START leads to output 2; then it ends, or repeats, without output 1.
    ends = math.exp(1.0) / (math.exp(1.0) + math.exp(0.5))
    for length in (1, 2, 3):
        expected = ends * (1 - ends) ** (length - 1)
        assert counts[(2,) * length] / 4000 == pytest.approx(expected, abs=0.03)
