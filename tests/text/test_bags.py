import numpy as np
import pytest
import torch

from fne.text import bags as bags_module
from fne.text.bags import (
    Bags,
    inverse_document_frequencies,
    leading_eigenvectors,
    mean_features,
    second_moment,
    tfidf_features,
)

WORDS = 30


@pytest.fixture
def captions() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    drawn = [generator.integers(0, WORDS, generator.integers(1, 9)) for _ in range(200)]
    return [*drawn, np.array([], dtype=np.int64), np.array([0, 0]), np.array([5, 5, 5])]


def plain_frequencies(captions, min_count: int) -> list[float]:
    """The definition, word by word."""
    weights = [0.0]
    for word in range(1, WORDS):
        having = sum(word in caption.tolist() for caption in captions)
        weights.append(float(np.log(len(captions) / having)) if having >= min_count else 0.0)
    return weights


def plain_rows(captions, weights, order: float) -> np.ndarray:
    """Rows (captions, words) of weighted counts, each divided by the norm of its occurrences' weights."""
    rows = np.zeros((len(captions), WORDS))
    for row, caption in zip(rows, captions, strict=True):
        norm = sum(weights[word] ** order for word in caption) ** (1 / order)
        for word in caption:
            row[word] += weights[word] / norm if norm else 0.0
    return rows


@pytest.mark.parametrize("min_count", [1, 30])
def test_frequencies_equal_the_definition_word_by_word(captions, min_count):
    found = inverse_document_frequencies(Bags.of(captions), WORDS, min_count)
    assert found.tolist() == pytest.approx(plain_frequencies(captions, min_count))
    assert 0 < np.count_nonzero(found) < WORDS


@pytest.mark.parametrize("block", [7, 1000])
def test_the_second_moment_equals_that_of_explicit_rows(captions, block, monkeypatch):
    monkeypatch.setattr(bags_module, "BLOCK", block)
    weights = inverse_document_frequencies(Bags.of(captions), WORDS, 30)
    kept = np.flatnonzero(weights)
    rows = plain_rows(captions, weights, order=2.0)[:, kept]
    found = second_moment(Bags.of(captions), weights, kept, order=2.0)
    assert np.allclose(found.numpy(), rows.T @ rows / len(captions), rtol=1e-12, atol=1e-15)


def test_features_equal_explicit_rows_projected_to_the_leading_eigenvectors_or_as_they_are(captions):
    bags = Bags.of(captions)
    weights = inverse_document_frequencies(bags, WORDS, 1)
    rows = plain_rows(captions, weights, order=2.0)
    _, vectors = np.linalg.eigh(rows.T @ rows)
    leading = vectors[:, ::-1][:, :4]
    found = tfidf_features(bags, weights, dim=4).of(bags).numpy()
    assert np.allclose(np.abs(found), np.abs(rows @ leading), atol=1e-10)
    weights = inverse_document_frequencies(bags, WORDS, 30)
    known = plain_rows(captions, weights, order=2.0)[:, np.flatnonzero(weights)]
    assert np.allclose(tfidf_features(bags, weights, dim=0).of(bags).numpy(), known)


def test_captions_without_a_known_word_have_features_of_zero(captions):
    bags = Bags.of(captions)
    features = tfidf_features(bags, inverse_document_frequencies(bags, WORDS, 1), dim=3)
    assert not features.of(Bags.of(captions[200:202])).any()
    assert features.of(Bags.of([np.array([], dtype=np.int64)])).shape == (1, 3)


def test_means_of_word_vectors_leave_unknown_words_out(captions):
    vectors = np.random.default_rng(1).normal(size=(WORDS, 5)).astype(np.float32)
    found = mean_features(vectors).of(Bags.of(captions)).numpy()
    for row, caption in zip(found, captions, strict=True):
        known = [vectors[word].astype(np.float64) for word in caption if word]
        assert np.allclose(row, np.mean(known, axis=0) if known else 0.0)


def test_chosen_captions_keep_their_words(captions):
    chosen = Bags.of(captions).select(np.array([202, 3]))
    assert chosen.words.tolist() == [5, 5, 5, *captions[3].tolist()]
    assert chosen.offsets.tolist() == [0, 3, 3 + len(captions[3])]


def spectrum(size: int) -> torch.Tensor:
    generator = np.random.default_rng(0)
    basis, _ = np.linalg.qr(generator.normal(size=(size, size)))
    return torch.from_numpy(basis * (1.0 / np.arange(1, size + 1)) @ basis.T)


def test_subspace_iteration_captures_what_the_leading_eigenvectors_capture(monkeypatch):
    assert leading_eigenvectors(spectrum(6), 10).shape == (6, 6)
    matrix = spectrum(120)
    exact = leading_eigenvectors(matrix, 20)
    monkeypatch.setattr(bags_module, "EXACT", 50)
    found = leading_eigenvectors(matrix, 20)
    assert torch.allclose(found.T @ found, torch.eye(20, dtype=torch.float64), atol=1e-10)
    captured, best = (float((each.T @ matrix @ each).trace()) for each in (found, exact))
    assert captured == pytest.approx(best, rel=1e-3)
    assert torch.equal(found, leading_eigenvectors(matrix, 20))
