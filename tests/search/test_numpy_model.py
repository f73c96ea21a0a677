import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fne.core.distributed_layers import SyncBatchNorm
from fne.core.errors import InputError
from fne.matching import similarities
from fne.matching.model import Matcher, Shape, new_matcher
from fne.matching.model_file import ModelFile, read_model_file, write_model
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.search import engine
from fne.search.engine import score_blocks
from fne.search.numpy_model import PREFIX, SENTENCE_ENCODERS, SIMILARITIES, embed_sentence
from fne.store.artifact import Artifact
from tests.support.variants import examples

SENTENCES = [[3], [0, 0], [1, 5, 2, 5, 11], list(range(12)) * 2]
ZEROS = {"words.weight": (1, 3), "map.weight": (2, 3), "map.bias": 2}


def new_shape(encoder: str, similarity: str, absolute: bool, **sizes: int) -> Shape:
    own = examples(TEXT_ENCODERS[encoder]).model_dump() if encoder in TEXT_ENCODERS else {}
    return Shape("linear", encoder, similarity, absolute, 6, **sizes, text_encoder_settings=own)


def move_statistics(matcher: Matcher) -> None:
    """Give batch normalization statistics and gains as after some training."""
    for norm in (each for each in matcher.modules() if isinstance(each, SyncBatchNorm)):
        for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            values.copy_(torch.linspace(0.5, 1.5, len(values)))


def test_every_text_encoder_has_a_numpy_implementation():
    """An encoder without one still works, but the search then imports torch; exclude it here."""
    assert SENTENCE_ENCODERS.keys() == TEXT_ENCODERS.keys()


# Large weights saturate the gates and amplify rounding errors from word to word.
@pytest.mark.parametrize(("dtype", "scale", "tolerance"), [("float32", 1, 1e-5), ("float64", 30, 1e-10)])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("encoder", SENTENCE_ENCODERS)
def test_the_vector_of_a_sentence_equals_that_of_torch(tmp_path, encoder, absolute, dtype, scale, tolerance):
    shape = new_shape(encoder, "cosine", absolute, vocabulary_size=12, word_dim=5, embed_dim=16)
    matcher = new_matcher(shape, seed=0).requires_grad_(False).eval().to(getattr(torch, dtype))
    move_statistics(matcher)
    for value in matcher.text_encoder.parameters():
        value *= scale
    write_model(tmp_path / "model", matcher, {}, {})
    model = read_model_file(tmp_path / "model", PREFIX)
    for numbers in SENTENCES:
        expected = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))[0].numpy()
        found = embed_sentence(model, numbers)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)


def test_a_vector_of_zeros_is_not_divided_by_zero():
    weights = {f"{PREFIX}{name}": np.zeros(size) for name, size in ZEROS.items()}
    model = ModelFile(Artifact(Path("m"), "model", ""), {"text_encoder": "bow", "absolute": False}, weights)
    assert embed_sentence(model, [0]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("shape", "missing", "numbers"),
    [
        ({"text_encoder": "bow"}, None, [0]),
        ({"text_encoder": "bow", "absolute": False}, "map.bias", [0]),
        ({"text_encoder": "bow", "absolute": False}, None, [7]),
        ({"text_encoder": "gru", "absolute": False}, None, [0]),
    ],
)
def test_a_model_file_with_missing_or_wrong_weights_is_refused(shape, missing, numbers):
    weights = {f"{PREFIX}{name}": np.zeros(size) for name, size in ZEROS.items() if name != missing}
    model = ModelFile(Artifact(Path("m"), "model", ""), shape, weights)
    with pytest.raises(InputError, match=r"m: not a model of fne \(.*\); run `fne verify m`"):
        embed_sentence(model, numbers)


def unit_vectors(count: int, seed: int, dim: int = 24) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def by_hand(name: str, image: np.ndarray, caption: np.ndarray) -> float:
    pairs = [(float(i), float(c)) for i, c in zip(image, caption, strict=True)]
    if name == "cosine":
        return sum(i * c for i, c in pairs)
    if name == "euclidean":
        return -math.sqrt(sum((i - c) ** 2 for i, c in pairs) + 1e-4)
    excess = sum(max(0.0, c - i) ** 2 for i, c in pairs)
    return -math.sqrt(excess) if name == "order_root" else -excess


def test_every_similarity_has_a_numpy_implementation():
    """A similarity without one still works, but the search then imports torch; exclude it here."""
    assert SIMILARITIES.keys() == similarities.SIMILARITIES.keys()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_scores_equal_those_of_a_plain_loop_for_an_image_and_for_a_sentence(name):
    images, captions = unit_vectors(9, seed=1), unit_vectors(7, seed=2)
    for caption in captions:
        expected = [by_hand(name, image, caption) for image in images]
        np.testing.assert_allclose(
            score_blocks(name, [(images, caption[None])]), expected, rtol=1e-5, atol=1e-7
        )
    for image in images:
        expected = [by_hand(name, image, caption) for caption in captions]
        np.testing.assert_allclose(
            score_blocks(name, [(image[None], captions)]), expected, rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("encoder", SENTENCE_ENCODERS)
def test_a_sentence_ranks_images_as_with_torch(tmp_path, encoder, name):
    shape = new_shape(encoder, name, name != "cosine", vocabulary_size=40, word_dim=8, embed_dim=24)
    matcher = new_matcher(shape, seed=3).requires_grad_(False).eval()
    move_statistics(matcher)
    write_model(tmp_path / "model", matcher, {}, {})
    model = read_model_file(tmp_path / "model", PREFIX)
    images = np.abs(unit_vectors(500, seed=4)) if shape.absolute else unit_vectors(500, seed=4)
    for seed in range(5):
        numbers = np.random.default_rng(seed).integers(0, 40, size=3 + 4 * seed).tolist()
        caption = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))
        expected = matcher.similarity(torch.from_numpy(images), caption)[:, 0].numpy()
        found = score_blocks(name, [(images, embed_sentence(model, numbers)[None])])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert np.argsort(-found, kind="stable").tolist() == np.argsort(-expected, kind="stable").tolist()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_a_score_does_not_depend_on_the_other_rows_of_its_block(name):
    """So equal images have equal scores, and a folder is ranked as the catalog is."""
    images, caption = unit_vectors(101, seed=5), unit_vectors(1, seed=6)
    whole = score_blocks(name, [(images, caption)])
    parts = score_blocks(name, ((images[start : start + 7], caption) for start in range(0, 101, 7)))
    assert whole.tolist() == parts.tolist()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_nan_in_a_vector_gives_a_nan_score(name):
    images = np.array([[0.6, np.nan]], dtype=np.float32)
    assert np.isnan(score_blocks(name, [(images, np.array([[0.0, 1.0]], dtype=np.float32))])).all()


@pytest.mark.parametrize("name", ["order", "order_root"])
def test_the_score_of_a_caption_below_its_image_is_positive_zero(name):
    vectors = unit_vectors(3, seed=9)
    assert str(score_blocks(name, [(vectors + 2, vectors[:1])]).tolist()) == "[0.0, 0.0, 0.0]"


def test_no_blocks_give_no_scores():
    assert score_blocks("cosine", []).tolist() == []


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_a_similarity_without_a_numpy_implementation_is_computed_with_torch(monkeypatch, name):
    images, caption = unit_vectors(20, seed=7), unit_vectors(1, seed=8)
    expected = score_blocks(name, [(images, caption)]), score_blocks(name, [(caption, images)])
    monkeypatch.setattr(engine, "SIMILARITIES", {})
    found = score_blocks(name, [(images, caption)]), score_blocks(name, [(caption, images)])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
