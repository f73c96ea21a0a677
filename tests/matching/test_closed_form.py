"""Closed-form alignment against plain dense implementations and problems with known solutions."""

from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.evaluation.metrics.ranks import rank
from fne.evaluation.metrics.recall import retrieval_values
from fne.matching import closed_form, second_moments
from fne.matching.closed_form import METHODS, Alignment, CaptionedImages, fit, matcher_of, needed_memory
from fne.matching.second_moments import FewImages, PairMoments
from fne.matching.settings import ClosedForm
from fne.matching.similarities import cosine
from fne.store.layout import Layer
from fne.store.rows import Rows
from fne.text.bags import Bags
from tests.support.features import store

IMAGES, FEATURES, WORDS = 90, 12, 25
SETTINGS = ClosedForm(
    dim=6,
    text="tfidf",
    text_dim=10,
    min_count=1,
    image_regularization=[0.1, 1.0],
    text_regularization=[0.05, 0.5],
    power=[1.0, 2.0],
    choose_on="train",
    holdout=15,
    seed=0,
)


def changed(**changes: object) -> ClosedForm:
    return SETTINGS.model_copy(update=changes)


def draw(seed: int = 0, images: int = IMAGES) -> tuple[np.ndarray, CaptionedImages]:
    """Images whose features depend on the words of their captions, one to three captions per image."""
    generator = np.random.default_rng(seed)
    topics = np.random.default_rng(99).normal(size=(WORDS, FEATURES))
    rows, captions = [], []
    for _ in range(images):
        words = generator.integers(1, WORDS, 6)
        rows.append(topics[words].sum(axis=0) + generator.normal(0, 0.5, FEATURES) + 3.0)
        count = int(generator.integers(1, 4))
        captions.append([generator.permutation(words)[: generator.integers(3, 7)] for _ in range(count)])
    ids = [f"r{number:02d}" for number in range(images)]
    return np.array(rows, dtype=np.float32), CaptionedImages.of(ids, captions)


def align(rows: Rows, images: CaptionedImages, vectors=None, **changes: object) -> Alignment:
    """Align by CCA, without validation images."""
    return fit(rows, images, None, WORDS, "cca", changed(**changes), vectors)


def refusal(*arguments: object, **changes: object) -> str:
    with pytest.raises(InputError) as caught:
        align(*arguments, **changes)
    return caught.value.message


@pytest.fixture
def data(tmp_path) -> tuple[Rows, CaptionedImages]:
    values, images = draw()
    return store(tmp_path / "s", values, [Layer("conv", FEATURES)]), images


def captions_of(images: CaptionedImages) -> list[np.ndarray]:
    return np.split(images.bags.words, images.bags.offsets[1:-1])


def vectors_of(
    found: Alignment, values: np.ndarray, images: CaptionedImages
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a model with the alignment's weights."""
    matcher = matcher_of(found.state)
    rows = [torch.from_numpy(caption) for caption in captions_of(images)]
    words = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    with torch.no_grad():
        pictures = matcher.embed_images(torch.from_numpy(values.astype(np.float32)))
        sentences = matcher.embed_captions(words, torch.tensor([len(row) for row in rows]))
    return pictures.numpy(), sentences.numpy()


def rsum_of(pictures: np.ndarray, sentences: np.ndarray, images: CaptionedImages) -> float:
    vectors = (torch.from_numpy(each).float() for each in (pictures, sentences))
    ranking = rank(*vectors, torch.from_numpy(images.owners), cosine, 0)
    return retrieval_values(ranking.image_ranks.numpy(), ranking.caption_ranks.numpy())["rsum"]


def explicit_text(images: CaptionedImages, basis_of: CaptionedImages, text_dim: int) -> np.ndarray:
    """Rows (captions, text_dim) of tf-idf values of length one, projected to leading eigenvectors."""

    def rows_of(of: CaptionedImages) -> np.ndarray:
        rows = np.zeros((len(of.bags), WORDS))
        for row, words in zip(rows, captions_of(of), strict=True):
            for word in words:
                row[word] += weights[word]
            row /= np.sqrt(sum(weights[word] ** 2 for word in words)) or 1.0
        return rows

    weights = np.zeros(WORDS)
    captions = [set(caption.tolist()) for caption in captions_of(basis_of)]
    for word in range(1, WORDS):
        having = sum(word in caption for caption in captions)
        weights[word] = np.log(len(captions) / having) if having else 0.0
    training = rows_of(basis_of)
    _, vectors = np.linalg.eigh(training.T @ training)
    return rows_of(images) @ vectors[:, ::-1][:, :text_dim]


def dense(method, values, images, image_regularization, text_regularization, power, dim, text_dim):
    """Vectors of the training images and captions by explicit matrices of pairs, one row per caption."""
    x = values.astype(np.float64)[images.owners]
    y = explicit_text(images, images, text_dim)
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    cxx, cyy, cxy = x.T @ x / len(x), y.T @ y / len(y), x.T @ y / len(x)
    cxx = cxx + image_regularization * np.trace(cxx) / len(cxx) * np.eye(len(cxx))
    cyy_regularized = cyy + text_regularization * np.trace(cyy) / len(cyy) * np.eye(len(cyy))
    if method == "cca":
        left, right = (_inverse_root(each) for each in (cxx, cyy_regularized))
        u, s, vt = np.linalg.svd(left @ cxy @ right)
        pictures = x @ left @ u[:, :dim] * s[:dim] ** power
        sentences = y @ right @ vt.T[:, :dim] * s[:dim] ** power
    else:
        values_of, axes = np.linalg.eigh(cyy_regularized)
        axes, scales = axes[:, ::-1][:, :dim], values_of[::-1][:dim] ** (-power / 2)
        pictures = x @ np.linalg.solve(cxx, cxy) @ axes * scales
        sentences = y @ axes * scales
    first = np.searchsorted(images.owners, np.arange(len(images)))
    pictures = pictures[first]
    return (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (pictures, sentences))


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors / np.sqrt(values) @ vectors.T


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_similarities_equal_those_of_a_dense_implementation(data, method, power):
    rows, images = data
    settings = changed(image_regularization=[0.2], text_regularization=[0.3], power=[power])
    found = fit(rows, images, None, WORDS, method, settings)
    values = rows.read(images.ids)
    pictures, sentences = vectors_of(found, values, images)
    expected_pictures, expected_sentences = dense(method, values, images, 0.2, 0.3, power, dim=6, text_dim=10)
    # Axes are defined up to their signs, similarities entirely.
    assert np.allclose(pictures @ sentences.T, expected_pictures @ expected_sentences.T, atol=1e-4)


def test_the_canonical_correlations_of_known_gaussians_are_found():
    correlations = torch.tensor([0.9, 0.6, 0.3], dtype=torch.float64)
    generator = np.random.default_rng(0)
    count = 200_000
    shared = torch.from_numpy(generator.normal(size=(count, 3)))
    other = torch.from_numpy(generator.normal(size=(count, 3)))
    text = correlations * shared + (1 - correlations**2).sqrt() * other
    mix_images, mix_text = (torch.from_numpy(generator.normal(size=(3, 3))) for _ in range(2))
    moments = PairMoments(3, 3)
    moments.add(shared @ mix_images + 5, text @ mix_text - 2, torch.ones(count, dtype=torch.int64))
    solution = moments.solve(1e-9)
    axes = METHODS["cca"](solution, 1e-9, 3)
    assert axes.scales.tolist() == pytest.approx(correlations.tolist(), abs=0.01)
    # The axes of the text undo the mixing, up to signs.
    recovered = (text @ mix_text - 2 - solution.text_mean) @ axes.of_text
    agreement = np.corrcoef(recovered.T.numpy(), text.T.numpy())[:3, 3:]
    assert np.abs(np.diag(agreement)).tolist() == pytest.approx([1, 1, 1], abs=0.01)


@pytest.mark.parametrize("block", [1, 7, 10_000])
@pytest.mark.parametrize("tile", [5, 1024])
def test_streaming_in_blocks_equals_one_block(data, monkeypatch, block, tile):
    rows, images = data
    expected = align(rows, images)
    monkeypatch.setattr(closed_form, "BLOCK", block)
    monkeypatch.setattr(second_moments, "BLOCK", block)
    monkeypatch.setattr(second_moments, "TILE", tile)
    found = align(rows, images)
    values = rows.read(images.ids)
    assert [replace(each, rsum=0.0) for each in found.trials] == [
        replace(each, rsum=0.0) for each in expected.trials
    ]
    for one, other in zip(
        vectors_of(found, values, images), vectors_of(expected, values, images), strict=True
    ):
        assert np.allclose(np.abs(one), np.abs(other), atol=1e-4)


def test_equal_inputs_give_equal_bytes(data):
    first, second = align(*data), align(*data)
    assert first.chosen == second.chosen
    assert all(torch.equal(value, second.state[name]) for name, value in first.state.items())


def test_every_point_of_the_grid_is_tried_in_order_and_the_first_of_the_best_wins(data):
    found = align(*data)
    points = [(each.image_regularization, each.text_regularization, each.power) for each in found.trials]
    assert points == [(x, y, p) for x in (0.1, 1.0) for y in (0.05, 0.5) for p in (1.0, 2.0)]
    assert found.chosen == next(
        each for each in found.trials if each.rsum == max(other.rsum for other in found.trials)
    )
    twice = align(*data, power=[2.0, 2.0])
    assert [each.rsum for each in twice.trials[::2]] == [each.rsum for each in twice.trials[1::2]]


def test_validation_images_choose_and_all_training_images_fit(data, tmp_path):
    rows, images = data
    values, _ = draw()
    unseen, validation = draw(seed=1, images=30)
    both = store(tmp_path / "both", np.concatenate([values, unseen]), [Layer("conv", FEATURES)])
    validation = replace(validation, ids=[f"r{number}" for number in range(IMAGES, IMAGES + 30)])
    found = fit(both, images, validation, WORDS, "cca", changed(choose_on="val"))
    assert rsum_of(*vectors_of(found, unseen, validation), validation) == pytest.approx(
        found.chosen.rsum, abs=1.0
    )
    again = align(
        rows,
        images,
        image_regularization=[found.chosen.image_regularization],
        text_regularization=[found.chosen.text_regularization],
        power=[found.chosen.power],
    )
    # Held-out training images take part in the final fit.
    for one, other in zip(vectors_of(found, values, images), vectors_of(again, values, images), strict=True):
        assert np.allclose(np.abs(one), np.abs(other), atol=1e-4)


def test_the_seed_draws_the_holdout(data):
    rsums = {tuple(trial.rsum for trial in align(*data, seed=seed).trials) for seed in (0, 1, 2)}
    assert len(rsums) > 1


def test_word_vectors_replace_tf_idf(data):
    rows, images = data
    vectors = np.random.default_rng(3).normal(size=(WORDS, 8)).astype(np.float32)
    found = align(rows, images, vectors, text="vectors")
    values = rows.read(images.ids)
    assert found.state["text_encoder.order"] == 1.0
    assert rsum_of(*vectors_of(found, values, images), images) > 100


@pytest.mark.parametrize("vectors", [None, np.zeros((3, 4)), np.full((WORDS, 4), np.nan)])
def test_missing_or_faulty_word_vectors_are_refused(data, vectors):
    found = refusal(*data, vectors, text="vectors")
    assert found.startswith("text: vectors needs a vector for each of the 25 words, got ")


def test_images_without_words_and_empty_captions_are_no_obstacle(data):
    rows, images = data
    grouped = np.split(np.array(captions_of(images), dtype=object), np.cumsum(images.counts)[:-1])
    emptied = [[np.array([], dtype=np.int64)], [np.array([0, 0])], *map(list, grouped[2:])]
    found = align(rows, CaptionedImages.of(images.ids, emptied))
    assert all(value.isfinite().all() for value in found.state.values())


def test_constant_features_do_not_matter_beside_others(tmp_path):
    values, images = draw()
    wider = np.concatenate([values, np.full((IMAGES, 1), 7.0, dtype=np.float32)], axis=1)
    rows = store(tmp_path / "s", wider, [Layer("conv", FEATURES + 1)])
    found = align(rows, images)
    weight = found.state["image_head.weight"].abs()
    assert weight[:, -1].max() < 1e-6 * weight.max()


def test_features_that_do_not_vary_are_refused(tmp_path):
    _, images = draw()
    rows = store(tmp_path / "s", np.full((IMAGES, 3), 0.1, dtype=np.float32), [Layer("conv", 3)])
    assert "image features do not vary" in refusal(rows, images)


def test_captions_that_are_all_the_same_or_all_rare_are_refused(data):
    rows, images = data
    same = CaptionedImages.of(images.ids, [[np.array([3, 4])]] * IMAGES)
    nothing = "no word is in at least {} training captions, but not in all; lower min_count"
    assert refusal(rows, same) == nothing.format(1)
    assert refusal(*data, min_count=1000) == nothing.format(1000)
    found = refusal(rows, same, np.ones((WORDS, 4)), text="vectors")
    assert found.startswith("all training captions have the same words")


@pytest.mark.parametrize(("choose_on", "least"), [("val", 2), ("train", 5)])
def test_too_few_training_images_are_refused(data, choose_on, least):
    rows, images = data
    with pytest.raises(InputError, match=f"1 captioned images; .* needs at least {least}; see `catalog`"):
        fit(rows, images.select([0]), images, WORDS, "cca", changed(choose_on=choose_on))


@pytest.mark.parametrize("count", [0, None])
def test_missing_validation_images_are_refused(data, count):
    rows, images = data
    validation = None if count is None else images.select([])
    with pytest.raises(InputError, match="^there are no captioned validation images to choose settings by; "):
        fit(rows, images, validation, WORDS, "cca", changed(choose_on="val"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_with_row_and_layer(tmp_path, value):
    values, images = draw()
    values[4, 5] = value
    rows = store(tmp_path / "s", values, [Layer("conv", 3), Layer("fc", FEATURES - 3)])
    place = f"{rows.artifact.path}: row 'r04' has {value} in layer 'fc', column 5; "
    assert refusal(rows, images) == f"{place}run `dvc repro embed`"


def test_what_does_not_fit_into_memory_is_refused_with_figures(data):
    for memory, message in (
        (50_000, r"needs 0\.0 GB of memory for the second moment of 12 image features .*; keep fewer layers"),
        (100, "for the second moment of 24 words, but there are 0.0 GB; raise min_c"),
    ):
        with pytest.raises(InputError, match=message):
            fit(*data, None, WORDS, "cca", SETTINGS, memory=memory)


def test_coco_with_all_features_of_vgg16_fits_into_four_gigabytes():
    assert needed_memory(12_416, 1_000) < 4e9


def test_more_dimensions_than_the_text_has_are_cut(data):
    found = align(*data, dim=500)
    assert found.state["image_head.weight"].shape == (10, FEATURES)


def test_ternary_rows_are_read_as_numbers(tmp_path):
    _, images = draw()
    values = np.random.default_rng(0).integers(-1, 2, (IMAGES, FEATURES)).astype(np.int8)
    rows = store(tmp_path / "s", values, [Layer("conv", FEATURES)], dtype="ternary")
    plain = store(tmp_path / "p", values.astype(np.float32), [Layer("conv", FEATURES)])
    one, other = (fit(each, images, None, WORDS, "cca", SETTINGS) for each in (rows, plain))
    assert torch.equal(one.state["image_head.weight"], other.state["image_head.weight"])


@pytest.mark.parametrize("images", [7, 11])
def test_few_images_give_the_solution_of_the_moments(images):
    generator = torch.Generator().manual_seed(images)
    rows = torch.randn(images, FEATURES, generator=generator, dtype=torch.float64) + 1
    counts = torch.randint(1, 4, (images,), generator=generator)
    text = torch.randn(int(counts.sum()), 5, generator=generator, dtype=torch.float64)
    both = PairMoments(FEATURES, 5), FewImages(FEATURES, 5)
    ends = torch.cumsum(counts, 0).tolist()
    for each in both:  # in two blocks
        each.add(rows[:3], text[: ends[2]], counts[:3])
        each.add(rows[3:], text[ends[2] :], counts[3:])
    expected, found = (each.solve(0.3) for each in both)
    for name in ("regression", "image_mean", "text_mean", "text_covariance", "predicted_covariance"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-10)


def test_fewer_images_than_features_are_aligned_alike(tmp_path, monkeypatch):
    rows, images = draw(images=30)
    wide = np.concatenate([rows, rows**2, np.abs(rows)], axis=1)
    opened = store(tmp_path / "store", wide, [Layer("all", 3 * FEATURES)])
    few = fit(opened, images, None, WORDS, "cca", changed(holdout=5))
    monkeypatch.setattr(closed_form, "FEW_BYTES", 0)
    many = fit(opened, images, None, WORDS, "cca", changed(holdout=5))
    assert [trial.rsum for trial in few.trials] == [trial.rsum for trial in many.trials]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text_dim", [0, 4])
def test_rows_of_captions_are_aligned_like_their_principal_components_as_words(data, method, text_dim):
    """With a word of its own for each caption, and its components as the vector, the mean is that row."""
    rows, images = data
    generator = np.random.default_rng(3)
    spread = generator.normal(size=(9, 9))
    captions = (generator.normal(size=(len(images.bags), 9)) @ spread + 2).astype(np.float32)
    numbers = np.arange(len(captions))
    by_row = replace(images, bags=Bags(numbers, np.arange(len(captions) + 1)))
    by_word = replace(images, bags=Bags(numbers + 1, np.arange(len(captions) + 1)))
    basis = np.eye(9)
    if text_dim:
        basis = np.linalg.svd(captions - captions.mean(axis=0), full_matrices=False)[2][:text_dim].T
    words = np.concatenate([np.zeros((1, basis.shape[1])), captions @ basis])
    found = fit(rows, by_row, None, 0, method, changed(text="rows", text_dim=text_dim), captions)
    expected = fit(rows, by_word, None, len(words), method, changed(text="vectors"), words)
    assert astuple(found.chosen) == pytest.approx(astuple(expected.chosen))
    matcher = matcher_of(found.state)
    with torch.no_grad():
        vectors = matcher.text_encoder(torch.from_numpy(captions), torch.ones(len(captions))).numpy()
    words, bias = (expected.state[f"text_encoder.{name}"] for name in ("words.weight", "map.bias"))
    theirs = (words[1:, :-1] + bias).numpy()
    # The axes may differ in sign.
    assert np.allclose(
        vectors @ vectors.T, theirs @ theirs.T, rtol=2e-3, atol=2e-3 * np.abs(theirs @ theirs.T).max()
    )
    maps = [each.state["image_head.weight"].numpy() for each in (found, expected)]
    mapped = [each.T @ each for each in maps]
    assert np.allclose(*mapped, rtol=2e-3, atol=2e-3 * np.abs(mapped[1]).max())
    assert matcher.shape.text_encoder == "rows"
    assert matcher.shape.word_dim == 9
