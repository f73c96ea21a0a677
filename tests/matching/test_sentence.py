from pathlib import Path

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.matching.model import Shape, new_matcher
from fne.matching.modelfile import ModelFile, read_model_file, write_model
from fne.matching.sentence import PREFIX, SENTENCE_ENCODERS, embed_sentence
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.store.lineage import Artifact

SENTENCES = [[3], [0, 0], [1, 5, 2, 5, 11], list(range(12)) * 3]


def test_every_text_encoder_has_a_twin():
    """One without is answered by torch, seconds later: leave it out of `SENTENCE_ENCODERS` and of this test."""
    assert SENTENCE_ENCODERS.keys() == TEXT_ENCODERS.keys()


# Large weights drive the gates to their ends, and make rounding grow from word to word.
@pytest.mark.parametrize(("dtype", "scale", "tolerance"), [("float32", 1, 1e-5), ("float64", 30, 1e-10)])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("encoder", SENTENCE_ENCODERS)
def test_a_sentence_has_the_vector_that_torch_gives_it(tmp_path, encoder, absolute, dtype, scale, tolerance):
    shape = Shape("linear", encoder, "cosine", absolute, 6, vocabulary_size=12, word_dim=5, embed_dim=16)
    matcher = new_matcher(shape, seed=0).requires_grad_(False).eval().to(getattr(torch, dtype))
    for value in matcher.text_encoder.parameters():
        value *= scale
    write_model(tmp_path / "model", matcher, {}, {})
    model = read_model_file(tmp_path / "model", PREFIX)
    for numbers in SENTENCES:
        expected = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))[0].numpy()
        found = embed_sentence(model, numbers)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)


def test_a_vector_of_zeros_stays_one():
    weights = {f"{PREFIX}{name}": np.zeros(size) for name, size in ZEROS.items()}
    model = ModelFile(Artifact(Path("m"), "model", ""), {"text_encoder": "bow", "absolute": False}, weights)
    assert embed_sentence(model, [0]).tolist() == [0, 0]


ZEROS = {"words.weight": (1, 3), "map.weight": (2, 3), "map.bias": 2}


@pytest.mark.parametrize(
    ("shape", "missing", "numbers"),
    [
        ({"text_encoder": "bow"}, None, [0]),
        ({"text_encoder": "bow", "absolute": False}, "map.bias", [0]),
        ({"text_encoder": "bow", "absolute": False}, None, [7]),
        ({"text_encoder": "gru", "absolute": False}, None, [0]),
    ],
)
def test_a_file_without_the_weights_of_its_shape_is_refused(shape, missing, numbers):
    weights = {f"{PREFIX}{name}": np.zeros(size) for name, size in ZEROS.items() if name != missing}
    model = ModelFile(Artifact(Path("m"), "model", ""), shape, weights)
    with pytest.raises(InputError, match=r"m: not a model of ours \(.*\); run `fne verify m`"):
        embed_sentence(model, numbers)
