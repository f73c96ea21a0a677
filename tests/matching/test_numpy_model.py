from pathlib import Path

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.matching import similarities
from fne.matching.model import Shape, new_matcher
from fne.matching.model_file import ModelFile, read_model_file, write_model
from fne.matching.numpy_model import PREFIX, TEXT_ENCODER, cosine, embed_sentences
from fne.matching.settings import ROWS
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.search.embed_query import torch_encoder, torch_similarity
from fne.search.snapshot import sentence_encoder
from fne.store.artifact import Artifact
from tests.support.variants import settings_of

SENTENCES = [[3], [0, 0], [1, 5, 2, 5, 11], list(range(12)) * 2]
ZEROS = {"words.weight": (1, 3), "order": 1, "map.weight": (2, 2), "map.bias": 2}


def new_shape(encoder: str, similarity: str, absolute: bool, **sizes: int) -> Shape:
    own = settings_of(encoder)
    sizes["text_encoder_settings"] = own.model_dump() if own else {}
    return Shape("linear", encoder, similarity, absolute, 6, **sizes)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("absolute", [False, True])
def test_the_vector_of_a_sentence_equals_that_of_torch(tmp_path, absolute, dtype, tolerance):
    shape = new_shape(TEXT_ENCODER, "cosine", absolute, vocabulary_size=12, word_dim=5, embed_dim=16)
    matcher = new_matcher(shape, seed=0).requires_grad_(False).eval().to(getattr(torch, dtype))
    write_model(tmp_path / "model", matcher, {}, {})
    model = read_model_file(tmp_path / "model", PREFIX)
    expected = torch_encoder(model.artifact)(SENTENCES)
    found = embed_sentences(model, SENTENCES)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("encoder", [each for each in TEXT_ENCODERS if each not in ROWS])
def test_every_text_encoder_encodes_sentences(tmp_path, encoder):
    shape = new_shape(encoder, "cosine", False, vocabulary_size=12, word_dim=5, embed_dim=16)
    matcher = new_matcher(shape, seed=0).requires_grad_(False).eval()
    write_model(tmp_path / "model", matcher, {}, {})
    encode = sentence_encoder(read_model_file(tmp_path / "model", PREFIX))
    for numbers, found in zip(SENTENCES, encode(SENTENCES), strict=True):
        expected = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))[0]
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def zeros(missing: str | None = None) -> dict[str, np.ndarray]:
    return {f"{PREFIX}{name}": np.zeros(size) for name, size in ZEROS.items() if name != missing}


def test_a_vector_of_zeros_is_not_divided_by_zero():
    model = ModelFile(Artifact(Path("m"), "model", ""), {"absolute": False}, zeros())
    assert embed_sentences(model, [[0]]).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("shape", "missing", "numbers"),
    [({}, None, [0]), ({"absolute": False}, "map.bias", [0]), ({"absolute": False}, None, [7])],
)
def test_a_model_file_with_missing_or_wrong_weights_is_refused(shape, missing, numbers):
    model = ModelFile(Artifact(Path("m"), "model", ""), shape, zeros(missing))
    with pytest.raises(InputError, match=r"m: not a model of fne \(.*\); run `fne verify m`"):
        embed_sentences(model, [numbers])


def unit_vectors(count: int, seed: int, dim: int = 24) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_scores_equal_those_of_a_plain_loop_for_an_image_and_for_a_sentence():
    images, captions = unit_vectors(9, seed=1), unit_vectors(7, seed=2)
    expected = [
        [sum(float(a) * float(b) for a, b in zip(i, c, strict=True)) for c in captions] for i in images
    ]
    found = np.stack([cosine(images, caption[None]) for caption in captions], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    found = np.stack([cosine(image[None], captions) for image in images])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_a_score_does_not_depend_on_the_other_rows_of_its_block():
    """So equal images have equal scores, and a folder is ranked as the catalog is."""
    images, caption = unit_vectors(101, seed=5), unit_vectors(1, seed=6)
    parts = [cosine(images[start : start + 7], caption) for start in range(0, 101, 7)]
    assert cosine(images, caption).tolist() == np.concatenate(parts).tolist()


def test_nan_in_a_vector_gives_a_nan_score():
    images = np.array([[0.6, np.nan]], dtype=np.float32)
    assert np.isnan(cosine(images, np.array([[0.0, 1.0]], dtype=np.float32))).all()


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_every_similarity_compares_one_vector_with_many(name):
    images, caption = unit_vectors(20, seed=7), unit_vectors(1, seed=8)
    compare, whole = torch_similarity(name), similarities.SIMILARITIES[name]
    pairs = [torch.from_numpy(each) for each in (images, caption)]
    np.testing.assert_allclose(compare(images, caption), whole(*pairs)[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(compare(caption, images), whole(*pairs[::-1])[0], rtol=1e-5, atol=1e-6)
