import numpy as np
import pytest
import torch
from torch import nn

from fne.core.errors import InputError
from fne.matching.numpy_model import tfidf as numpy_tfidf
from fne.matching.tfidf import TfIdf, tfidf

CAPTIONS = [[1, 2, 3], [4], [2, 2, 5, 1, 1], [0, 0]]


@pytest.fixture(params=[1.0, 2.0])
def encoder(request) -> TfIdf:
    torch.manual_seed(0)
    made = tfidf(nn.Embedding(6, 5), 3, None)
    with torch.no_grad():
        made.words.weight[:, -1] = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
        made.words.weight[0] = 0.0
        made.order.fill_(request.param)
    return made


def padded(filling: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, CAPTIONS))
    rows = [caption + [filling] * (longest - len(caption)) for caption in CAPTIONS]
    return torch.tensor(rows), torch.tensor([len(caption) for caption in CAPTIONS])


def plainly(encoder: TfIdf, caption: list[int]) -> list[float]:
    """The definition, word by word."""
    table, order = encoder.words.weight.tolist(), float(encoder.order)
    norm = sum(abs(table[word][-1]) ** order for word in caption) ** (1 / order) or 1.0
    total = [sum(table[word][column] for word in caption) / norm for column in range(len(table[0]) - 1)]
    return [
        sum(weight * value for weight, value in zip(row, total, strict=True)) + bias
        for row, bias in zip(encoder.map.weight.tolist(), encoder.map.bias.tolist(), strict=True)
    ]


def test_vectors_equal_the_definition_word_by_word(encoder):
    for found, caption in zip(encoder(*padded()).tolist(), CAPTIONS, strict=True):
        assert found == pytest.approx(plainly(encoder, caption), rel=1e-5)


def test_padding_is_never_read_as_a_word(encoder):
    assert torch.equal(encoder(*padded(filling=0)), encoder(*padded(filling=5)))


def test_without_a_word_of_positive_weight_the_vector_is_the_bias(encoder):
    assert torch.equal(encoder(*padded())[3], encoder.map.bias)


def test_the_numpy_twin_computes_the_same(encoder):
    weights = {name: value.numpy() for name, value in encoder.state_dict().items()}
    for found, caption in zip(encoder(*padded()).detach().numpy(), CAPTIONS, strict=True):
        twin = numpy_tfidf(weights["words.weight"][caption], weights)
        assert np.allclose(twin, found, rtol=1e-6, atol=1e-7)


def test_training_moves_the_vectors_and_not_the_weights(encoder):
    encoder(*padded()).square().sum().backward()
    gradient = encoder.words.weight.grad
    assert torch.isfinite(gradient).all()
    assert gradient[1:, :-1].any()
    assert not gradient[:, -1].any()


def test_a_table_without_a_column_for_vectors_is_refused():
    with pytest.raises(InputError, match="^train.word_dim is 1; text encoder 'tfidf' needs at least 2: "):
        tfidf(nn.Embedding(6, 1), 3, None)
