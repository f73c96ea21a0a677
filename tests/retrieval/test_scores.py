import math

import numpy as np
import pytest
import torch

from fne.matching.model import Shape, new_matcher
from fne.matching.modelfile import read_model_file, write_model
from fne.matching.sentence import PREFIX, SENTENCE_ENCODERS, embed_sentence
from fne.ranking import similarities
from fne.retrieval import scores
from fne.retrieval.scores import SIMILARITIES, score


def unit_vectors(count: int, seed: int, dim: int = 24) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def by_hand(name: str, image: np.ndarray, caption: np.ndarray) -> float:
    pairs = [(float(i), float(c)) for i, c in zip(image, caption, strict=True)]
    if name == "cosine":
        return sum(i * c for i, c in pairs)
    excess = sum(max(0.0, c - i) ** 2 for i, c in pairs)
    return -math.sqrt(excess) if name == "order_root" else -excess


def test_every_similarity_has_a_twin():
    """One without is answered by torch, seconds later: leave it out of both tables here and there."""
    assert SIMILARITIES.keys() == similarities.SIMILARITIES.keys()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_scores_are_those_of_a_plain_loop_whichever_side_is_asked_with(name):
    images, captions = unit_vectors(9, seed=1), unit_vectors(7, seed=2)
    for caption in captions:
        expected = [by_hand(name, image, caption) for image in images]
        np.testing.assert_allclose(score(name, [(images, caption[None])]), expected, rtol=1e-5, atol=1e-7)
    for image in images:
        expected = [by_hand(name, image, caption) for caption in captions]
        np.testing.assert_allclose(score(name, [(image[None], captions)]), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("encoder", SENTENCE_ENCODERS)
def test_a_sentence_ranks_images_as_with_torch(tmp_path, encoder, name):
    shape = Shape("linear", encoder, name, name != "cosine", 6, vocabulary_size=40, word_dim=8, embed_dim=24)
    matcher = new_matcher(shape, seed=3).requires_grad_(False).eval()
    write_model(tmp_path / "model", matcher, {}, {})
    model = read_model_file(tmp_path / "model", PREFIX)
    images = np.abs(unit_vectors(500, seed=4)) if shape.absolute else unit_vectors(500, seed=4)
    for seed in range(5):
        numbers = np.random.default_rng(seed).integers(0, 40, size=3 + 4 * seed).tolist()
        caption = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))
        expected = matcher.similarity(torch.from_numpy(images), caption)[:, 0].numpy()
        found = score(name, [(images, embed_sentence(model, numbers)[None])])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert np.argsort(-found, kind="stable").tolist() == np.argsort(-expected, kind="stable").tolist()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_a_score_does_not_depend_on_what_else_is_scored(name):
    """So equal images share their score, and a folder ranks as the catalog does."""
    images, caption = unit_vectors(101, seed=5), unit_vectors(1, seed=6)
    whole = score(name, [(images, caption)])
    parts = score(name, ((images[start : start + 7], caption) for start in range(0, 101, 7)))
    assert whole.tolist() == parts.tolist()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_what_is_no_number_stays_so(name):
    images = np.array([[0.6, np.nan]], dtype=np.float32)
    assert np.isnan(score(name, [(images, np.array([[0.0, 1.0]], dtype=np.float32))])).all()


@pytest.mark.parametrize("name", ["order", "order_root"])
def test_an_image_above_its_caption_scores_zero_without_a_sign(name):
    vectors = unit_vectors(3, seed=9)
    assert str(score(name, [(vectors + 2, vectors[:1])]).tolist()) == "[0.0, 0.0, 0.0]"


def test_nothing_to_score_gives_no_scores():
    assert score("cosine", []).tolist() == []


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_a_similarity_without_a_twin_is_left_to_torch(monkeypatch, name):
    images, caption = unit_vectors(20, seed=7), unit_vectors(1, seed=8)
    expected = score(name, [(images, caption)]), score(name, [(caption, images)])
    monkeypatch.setattr(scores, "SIMILARITIES", {})
    found = score(name, [(images, caption)]), score(name, [(caption, images)])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
