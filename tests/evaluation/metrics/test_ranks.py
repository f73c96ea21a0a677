import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fne.evaluation.metrics import ranks
from fne.evaluation.metrics.ranks import Blocks, rank
from fne.matching.similarities import SIMILARITIES, cosine
from tests.support.processes import in_processes


def plain_ranks(row: list[float], true: list[bool], top: int) -> tuple[int, int, list[int], list[float]]:
    """Return the rank of a query and its ties, wrong items first where scores are equal, and its top matches."""
    order = sorted(range(len(row)), key=lambda item: (-row[item], true[item]))
    rank = next(place for place, item in enumerate(order) if true[item])
    ties = sum(row[item] == row[order[rank]] and not true[item] for item in order)
    best = sorted(range(len(row)), key=lambda item: -row[item])[:top]
    return rank + 1, ties, best, [row[item] for item in best]


@st.composite
def datasets(draw):
    """Draw few distinct coordinates, so that ties are common, and any number of captions per image, in any order."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=7))
    vector = st.lists(st.integers(-2, 2).map(float), min_size=2, max_size=2)
    owners = draw(st.permutations([image for image, count in enumerate(counts) for _ in range(count)]))
    images, captions = ([draw(vector) for _ in each] for each in (counts, owners))
    return torch.tensor(images), torch.tensor(captions), owners


@hypothesis.settings(max_examples=200)
@given(datasets(), st.integers(1, 5))
def test_ranks_ties_and_top_matches_equal_those_of_sorting_in_plain_python(dataset, block):
    images, captions, owners = dataset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "BLOCK", block)
        found = rank(images, captions, torch.tensor(owners), cosine, top=3)
    scores = images @ captions.T
    for side, rows in (("image", scores), ("caption", scores.T)):
        for query, row in enumerate(rows.tolist()):
            items, own = (owners, query) if side == "image" else (range(len(images)), owners[query])
            names = [f"{side}_{each}" for each in ("ranks", "ties", "best", "best_scores")]
            values = tuple(getattr(found, name)[query].tolist() for name in names)
            assert values == plain_ranks(row, [item == own for item in items], 3)


@pytest.mark.parametrize("similarity", SIMILARITIES.values(), ids=SIMILARITIES)
@pytest.mark.parametrize("dim", [2, 300, 1024])
def test_a_collapsed_model_ranks_last_not_first(similarity, dim):
    """Seven images and fourteen captions of one vector each: an odd shape, which a plain matrix product rounds unevenly."""
    vector = torch.randn(1, dim, generator=torch.Generator().manual_seed(dim))
    owners = torch.arange(7).repeat_interleave(2)
    ranking = rank(vector.repeat(7, 1), vector.repeat(14, 1), owners, similarity, top=1)
    assert (ranking.image_ranks.tolist(), ranking.image_ties.tolist()) == ([13] * 7, [12] * 7)
    assert (ranking.caption_ranks.tolist(), ranking.caption_ties.tolist()) == ([7] * 14, [6] * 14)


@pytest.mark.parametrize("similarity", SIMILARITIES.values(), ids=SIMILARITIES)
def test_ranks_of_a_thousand_captions_equal_those_of_a_loop_with_argsort(similarity):
    """Published code ranks this way; it needs scores without ties."""
    generator = torch.Generator().manual_seed(3)
    images = torch.nn.functional.normalize(torch.randn(200, 32, generator=generator))
    captions = torch.nn.functional.normalize(
        images.repeat_interleave(5, 0) + torch.randn(1000, 32, generator=generator)
    )
    owners = torch.arange(200).repeat_interleave(5)
    ranking = rank(images.abs(), captions.abs(), owners, similarity, top=0)
    scores = similarity(images.abs(), captions.abs()).numpy()
    for image in range(200):
        order = np.argsort(-scores[image])
        places = [int(np.flatnonzero(order == caption)[0]) for caption in range(5 * image, 5 * image + 5)]
        assert ranking.image_ranks[image] == min(places) + 1
    for caption in range(1000):
        order = np.argsort(-scores[:, caption])
        assert ranking.caption_ranks[caption] == int(np.flatnonzero(order == caption // 5)[0]) + 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_vectors_of_other_precision_are_ranked_without_rounding(dtype):
    images = torch.tensor([[1.0], [1.0 + 2**-6]], dtype=dtype)
    captions = torch.tensor([[1.0], [1.0 + 2**-6]], dtype=dtype)
    ranking = rank(images, captions, torch.arange(2), cosine, top=1)
    assert (ranking.image_ranks.tolist(), ranking.caption_ranks.tolist()) == ([2, 1], [2, 1])
    assert int(ranking.image_ties.sum()) == 0


def test_an_image_without_captions_is_refused():
    with pytest.raises(ValueError, match="image 1 has no caption"):
        rank(torch.ones(3, 2), torch.ones(2, 2), torch.tensor([0, 2]), cosine, top=0)


def test_nan_is_refused():
    images = torch.tensor([[1.0], [float("nan")]])
    with pytest.raises(ValueError, match="2 scores of images 0 and following are NaN"):
        rank(images, torch.ones(2, 1), torch.arange(2), cosine, top=1)


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("top", [0, 2, 40])
def test_several_processes_rank_as_one_does(monkeypatch, processes, top):
    monkeypatch.setattr(ranks, "BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    # Few distinct values, so that there are ties to break.
    images = torch.randint(0, 2, (19, 3), generator=generator).float()
    captions = torch.randint(0, 2, (38, 3), generator=generator).float()
    owners = torch.arange(38) // 2
    expected = rank(images, captions, owners, cosine, top)

    def work(group):
        found = rank(images, captions, owners, cosine, top, group)
        return {name: value.numpy() for name, value in vars(found).items()}

    for found in in_processes(processes, work):
        for name, value in vars(expected).items():
            assert (found[name] == value.numpy()).all(), name


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
def test_equal_vectors_have_equal_scores_at_any_position(similarity, images, captions, size, dim):
    """A plain product of 7 x 13 gives two or three different scores here."""
    counts = np.bincount(np.arange(captions) % images)
    same = vectors(1, dim)
    sentence = same + 0.1 * vectors(2, dim)[1]
    blocks = Blocks(same.repeat(images, 1), sentence.repeat(captions, 1), counts, similarity, size)
    scores = [np.unique(block.scores) for block in [*blocks.own(), *blocks.others(range(len(blocks)))]]
    assert len(np.unique(np.concatenate(scores))) == 1
