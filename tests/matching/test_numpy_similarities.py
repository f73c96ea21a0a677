import numpy as np
import pytest
import torch
from torch.nn import functional

from fne.matching.numpy_similarities import NUMPY_SIMILARITIES, scale_to_unit
from fne.matching.similarities import SIMILARITIES, find_similarity


def test_every_similarity_has_an_implementation_in_numpy():
    assert NUMPY_SIMILARITIES.keys() == SIMILARITIES.keys()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_scores_are_those_of_torch(name):
    generator = np.random.default_rng(3)
    images, captions = (generator.normal(size=(rows, 7)).astype(np.float32) for rows in (5, 11))
    similarity = find_similarity({"source": "imported", "similarity": name})
    expected = similarity(torch.from_numpy(images), torch.from_numpy(captions))
    found = NUMPY_SIMILARITIES[name](images, captions)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_vectors_are_scaled_as_by_torch_and_zeros_stay_zeros():
    vectors = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    vectors[1] = 0
    vectors[2] *= 1e-20
    expected = functional.normalize(torch.from_numpy(vectors), dim=1)
    np.testing.assert_allclose(scale_to_unit(vectors), expected.numpy(), rtol=1e-6, atol=1e-6)
    assert not scale_to_unit(vectors)[1].any()
