import numpy as np
import pytest
import torch

from fne.ranking.blocks import Blocks
from fne.ranking.similarities import SIMILARITIES, cosine

COUNTS = np.array([2, 1, 3, 1, 4])


def vectors(rows: int, dim: int = 6) -> torch.Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("similarity", SIMILARITIES.values(), ids=SIMILARITIES)
def test_every_score_is_computed_once(size, similarity):
    images, captions = vectors(5), vectors(11)
    blocks = Blocks(images, captions, COUNTS, similarity, size)
    found, times = np.zeros((5, 11), np.float32), np.zeros((5, 11))
    for block in [*blocks.own(), *blocks.others(range(len(blocks)))]:
        found[block.images, block.captions] = block.scores
        times[block.images, block.captions] += 1
    assert (times == 1).all()
    assert np.allclose(found, similarity(images, captions).numpy(), atol=1e-5)


def test_all_true_pairs_are_in_the_blocks_of_images_with_their_own_captions():
    owners = np.repeat(np.arange(5), COUNTS)
    held = np.zeros((5, 11), bool)
    for block in Blocks(vectors(5), vectors(11), COUNTS, cosine, 2).own():
        held[block.images, block.captions] = True
    assert held[owners, np.arange(11)].all()


@pytest.mark.parametrize("dim", [3, 77, 300, 1024])
@pytest.mark.parametrize(("images", "captions", "size"), [(7, 13, 512), (21, 43, 10), (100, 101, 33)])
@pytest.mark.parametrize("similarity", SIMILARITIES.values(), ids=SIMILARITIES)
def test_equal_vectors_have_equal_scores_wherever_they_stand(similarity, images, captions, size, dim):
    """A plain product of 7 x 13 gives two or three different scores here."""
    counts = np.bincount(np.arange(captions) % images)
    same = vectors(1, dim)
    sentence = same + 0.1 * vectors(2, dim)[1]
    blocks = Blocks(same.repeat(images, 1), sentence.repeat(captions, 1), counts, similarity, size)
    scores = [np.unique(block.scores) for block in [*blocks.own(), *blocks.others(range(len(blocks)))]]
    assert len(np.unique(np.concatenate(scores))) == 1
