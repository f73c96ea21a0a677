"""Second moments of all layers at once, against plain loops and the closed form that images are trained with."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from fne.matching.second_moments import Moments
from fne.probing.moments import cka_map, regression


def kernels(layers):
    """The kernel matrices of images, without their diagonal."""
    found = [rows @ rows.T for rows in layers]
    return [kernel - np.diag(np.diag(kernel)) for kernel in found]


def independence(first, second):
    """The unbiased estimate of the Hilbert-Schmidt independence criterion, by loops over images."""
    n = len(first)
    trace = sum(first[i, j] * second[j, i] for i in range(n) for j in range(n))
    middle = sum(first[i].sum() * second[i].sum() for i in range(n))
    total = first.sum() * second.sum() / ((n - 1) * (n - 2))
    return (trace + total - 2 * middle / (n - 2)) / (n * (n - 3))


def similarities(layers):
    """Return what the product computes: a map of unbiased CKA from moments and lengths."""
    moments = Moments(sum(rows.shape[1] for rows in layers))
    together = torch.from_numpy(np.concatenate(layers, axis=1))
    for block in together.split(7):
        moments.add(block)
    bounds = np.cumsum([0, *(rows.shape[1] for rows in layers)])
    places = [slice(start, stop) for start, stop in pairwise(bounds)]
    centered = together - together.mean(dim=0)
    lengths = torch.stack([centered[:, place].square().sum(dim=1) for place in places], dim=1)
    return cka_map(moments, places, lengths).numpy()


@pytest.fixture
def layers():
    random = np.random.default_rng(0)
    rows = random.standard_normal((30, 4)) + 5
    return [rows, np.maximum(rows @ random.standard_normal((4, 6)), 0), random.standard_normal((30, 50))]


def test_the_map_is_the_unbiased_cka_of_kernel_matrices(layers):
    found, own = similarities(layers), kernels(layers)
    for i, first in enumerate(own):
        for j, second in enumerate(own):
            scale = independence(first, first) * independence(second, second)
            expected = independence(first, second) / np.sqrt(scale)
            assert found[i, j] == pytest.approx(np.clip(expected, -1, 1), abs=1e-6)


def test_cka_does_not_change_with_rotation_scale_and_shift(layers):
    random = np.random.default_rng(1)
    turned = [3 * rows @ np.linalg.qr(random.standard_normal((rows.shape[1],) * 2))[0] - 7 for rows in layers]
    np.testing.assert_allclose(similarities(turned), similarities(layers), atol=1e-6)


def test_unrelated_layers_with_many_features_are_not_alike():
    """The biased estimate would say 0.9 for as many features as these."""
    random = np.random.default_rng(2)
    found = similarities([random.standard_normal((40, 400)), random.standard_normal((40, 400))])
    assert abs(found[0, 1]) < 0.1


def test_a_constant_layer_is_not_compared(layers):
    found = similarities([layers[0], np.full((30, 3), 0.1)])
    assert np.isnan(found[:, 1]).all()
    assert found[0, 0] == pytest.approx(1)


def test_the_regression_is_that_of_scikit_learn(layers):
    from sklearn.linear_model import Ridge

    features, targets = layers[1], layers[2][:, :3]
    moments = Moments(9)
    moments.add(torch.from_numpy(np.concatenate([features, targets], axis=1)))
    weights, _ = regression(moments, slice(0, 6), slice(6, 9), 0.3)
    ridge = Ridge(alpha=0.3 * len(features)).fit(features, targets)
    np.testing.assert_allclose(weights.numpy(), ridge.coef_.T, atol=1e-5)
    predicted = (features - features.mean(axis=0)) @ weights.double().numpy() + moments.mean[6:].numpy()
    np.testing.assert_allclose(predicted, ridge.predict(features), atol=1e-5)
