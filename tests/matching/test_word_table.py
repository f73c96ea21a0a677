import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.matching.word_table import word_table

VECTORS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_drawn_vectors_are_small_and_learned():
    torch.manual_seed(0)
    table = word_table(100, 5)
    assert table.weight.shape == (100, 5)
    assert 0.09 < table.weight.abs().max().item() <= 0.1
    assert table.weight.requires_grad


@pytest.mark.parametrize("fixed", [False, True])
def test_given_vectors_are_taken_as_they_are(fixed):
    table = word_table(3, 2, VECTORS, fixed)
    assert table.weight.tolist() == VECTORS.tolist()
    assert table.weight.requires_grad is not fixed


def test_training_does_not_change_the_array_that_was_given():
    table = word_table(3, 2, VECTORS)
    with torch.no_grad():
        table.weight.add_(1)
    assert VECTORS[0, 0] == 0


def test_vectors_of_another_vocabulary_are_refused():
    with pytest.raises(InputError, match="there are vectors of 3 words, but 4 words in the vocabulary; run"):
        word_table(4, 2, VECTORS)
