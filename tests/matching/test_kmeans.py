import numpy as np
import pytest
from sklearn.cluster import KMeans

from fne.core.errors import InputError
from fne.matching.kmeans import k_means


def test_no_row_is_nearer_to_another_center_as_in_an_independent_library():
    points = np.random.default_rng(1).normal(size=(200, 5))
    labels = k_means(points, 12, seed=3)
    centers = np.stack([points[labels == each].mean(axis=0) for each in range(12)])
    again = KMeans(12, init=centers, n_init=1, max_iter=1, tol=0).fit(points)
    assert np.array_equal(again.labels_, labels)
    best = KMeans(12, n_init=20, random_state=0).fit(points).inertia_
    assert ((points - centers[labels]) ** 2).sum() < 1.15 * best


def test_the_seed_decides():
    points = np.random.default_rng(1).normal(size=(200, 5))
    assert np.array_equal(k_means(points, 12, seed=3), k_means(points, 12, seed=3))
    assert not np.array_equal(k_means(points, 12, seed=3), k_means(points, 12, seed=4))


@pytest.mark.parametrize("classes", [1, 3, 10])
def test_every_class_has_a_row_even_if_rows_are_equal(classes):
    points = np.zeros((10, 2))
    points[:2] = 1
    labels = k_means(points, classes, seed=0)
    assert sorted(set(labels.tolist())) == list(range(classes))


@pytest.mark.parametrize("classes", [0, 11])
def test_there_are_at_most_as_many_classes_as_rows(classes):
    with pytest.raises(InputError, match=f"classes is {classes}, but there are 10 .* images; use 1 to 10"):
        k_means(np.zeros((10, 2)), classes, seed=0)
