import numpy as np
import pytest

from fne.core.errors import InputError
from fne.experiments.study_projection import reduce_rows
from fne.store.rows import Rows
from tests.support.features import store
from tests.support.studies import LAYERS


@pytest.fixture
def rows(tmp_path):
    generator = np.random.default_rng(0)
    values = generator.normal(size=(20, 7)) * np.array([9, 5, 1, 0.1, 0.1, 0.1, 0.1]) + 3
    return store(tmp_path / "rows", values.astype(np.float32), LAYERS)


def test_principal_components_are_those_of_the_training_images(rows, tmp_path):
    training = rows.ids[:15]
    assert reduce_rows(rows, training, "pca:2", 0, tmp_path / "p") == 2
    found = Rows.open(tmp_path / "p", "embeddings").read(rows.ids).astype(float)
    known = rows.read(training).astype(float)
    centered = rows.read(rows.ids).astype(float) - known.mean(axis=0)
    _, _, axes = np.linalg.svd(known - known.mean(axis=0))
    expected = centered @ axes[:2].T
    for column in range(2):
        assert abs(np.corrcoef(found[:, column], expected[:, column])[0, 1]) > 0.99999
    # One scale for all: the ratio of the deviations stays.
    assert found[:, 0].std() / found[:, 1].std() == pytest.approx(
        expected[:, 0].std() / expected[:, 1].std(), rel=1e-2
    )


def test_a_random_projection_depends_on_the_seed_alone_and_nearly_keeps_distances(rows, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        reduce_rows(rows, rows.ids, "random:7", seed, tmp_path / name)
    first, again, other = (Rows.open(tmp_path / name).read(rows.ids) for name in "abc")
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)

    def distances(values):
        values = values.astype(float)
        return np.linalg.norm(values[:, None] - values[None], axis=2)[np.triu_indices(20, 1)]

    assert np.corrcoef(distances(first), distances(rows.read(rows.ids)))[0, 1] > 0.7


def test_more_components_than_values_or_images_are_refused(rows, tmp_path):
    with pytest.raises(InputError) as caught:
        reduce_rows(rows, rows.ids, "pca:8", 0, tmp_path / "p")
    assert caught.value.message == (
        "study.project: pca:8 of 7 values and 20 training images; choose a smaller number"
    )
