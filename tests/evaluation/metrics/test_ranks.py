import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fne.evaluation.metrics import ranks
from fne.evaluation.metrics.ranks import Blocks, rank
from fne.matching.similarities import SIMILARITIES, cosine
from tests.support.processes import in_processes

# In compiled loops, and in NumPy.
COUNTED = st.sampled_from([0, ranks.FEW_SCORES])


def plain_ranks(scores: list[list[float]], caption_image: list[int]) -> tuple[list[int], list[int]]:
    """Compute ranks by sorting, with wrong items before true ones where scores are equal."""
    image_ranks = []
    for image, row in enumerate(scores):
        order = sorted(range(len(row)), key=lambda caption: (-row[caption], caption_image[caption] == image))
        image_ranks.append(
            1 + next(place for place, each in enumerate(order) if caption_image[each] == image)
        )
    caption_ranks = []
    for caption, true in enumerate(caption_image):
        column = [row[caption] for row in scores]
        order = sorted(range(len(column)), key=lambda image: (-column[image], image == true))
        caption_ranks.append(1 + order.index(true))
    return image_ranks, caption_ranks


@st.composite
def datasets(draw):
    """Draw few distinct coordinates, so that ties are common, and any number of captions per image."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=7))
    value = st.integers(-2, 2).map(float)
    images = draw(
        st.lists(st.lists(value, min_size=2, max_size=2), min_size=len(counts), max_size=len(counts))
    )
    captions = draw(
        st.lists(st.lists(value, min_size=2, max_size=2), min_size=sum(counts), max_size=sum(counts))
    )
    return (
        torch.tensor(images),
        torch.tensor(captions),
        [i for i, count in enumerate(counts) for _ in range(count)],
    )


def rank_in_blocks(size, few, images, captions, owners, top):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "FEW_SCORES", few)
        patch.setattr(ranks, "BLOCK", size)
        return rank(images, captions, torch.tensor(owners), cosine, top)


@given(datasets(), st.integers(1, 5), COUNTED)
def test_ranks_equal_those_of_sorting_in_plain_python(dataset, block, few):
    images, captions, caption_image = dataset
    ranking = rank_in_blocks(block, few, images, captions, caption_image, top=3)
    expected = plain_ranks((images @ captions.T).tolist(), caption_image)
    assert (ranking.image_ranks.tolist(), ranking.caption_ranks.tolist()) == expected


@given(datasets(), st.integers(1, 5), COUNTED)
def test_the_top_matches_equal_a_stable_sort_for_any_block_size(dataset, block, few):
    images, captions, caption_image = dataset
    ranking = rank_in_blocks(block, few, images, captions, caption_image, top=3)
    scores = (images @ captions.T).tolist()
    for image, row in enumerate(scores):
        expected = sorted(range(len(row)), key=lambda caption: -row[caption])[:3]
        assert ranking.image_best[image].tolist() == expected
        assert ranking.image_best_scores[image].tolist() == [row[each] for each in expected]
    for caption in range(len(caption_image)):
        column = [row[caption] for row in scores]
        expected = sorted(range(len(column)), key=lambda image: -column[image])[:3]
        assert ranking.caption_best[caption].tolist() == expected
        assert ranking.caption_best_scores[caption].tolist() == [column[each] for each in expected]


@given(datasets(), st.integers(1, 5), st.randoms())
def test_captions_may_come_in_any_order(dataset, block, random):
    images, captions, caption_image = dataset
    shuffled = random.sample(range(len(caption_image)), len(caption_image))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "BLOCK", block)
        one = rank(images, captions, torch.tensor(caption_image), cosine, top=2)
        other = rank(images, captions[shuffled], torch.tensor(caption_image)[shuffled], cosine, top=2)
    assert other.image_ranks.tolist() == one.image_ranks.tolist()
    assert other.caption_ranks.tolist() == one.caption_ranks[shuffled].tolist()
    assert other.image_best_scores.tolist() == one.image_best_scores.tolist()
    assert other.caption_best.tolist() == one.caption_best[shuffled].tolist()
    scores = (images @ captions[shuffled].T).tolist()
    for image, row in enumerate(scores):
        expected = sorted(range(len(row)), key=lambda caption: -row[caption])[:2]
        assert other.image_best[image].tolist() == expected


@given(datasets(), st.integers(1, 5), COUNTED)
def test_ties_equal_those_counted_in_plain_python(dataset, block, few):
    images, captions, owners = dataset
    ranking = rank_in_blocks(block, few, images, captions, owners, top=0)
    scores = (images @ captions.T).tolist()
    for image, row in enumerate(scores):
        best = max(score for score, owner in zip(row, owners, strict=True) if owner == image)
        tied = sum(score == best and owner != image for score, owner in zip(row, owners, strict=True))
        assert ranking.image_ties[image] == tied
    for caption, owner in enumerate(owners):
        tied = sum(row[caption] == scores[owner][caption] for row in scores) - 1
        assert ranking.caption_ties[caption] == tied


@pytest.mark.parametrize("similarity", SIMILARITIES.values(), ids=SIMILARITIES)
@pytest.mark.parametrize("dim", [2, 300, 1024])
def test_a_collapsed_model_ranks_last_not_first(similarity, dim):
    """Seven images and fourteen captions of one vector each: an odd shape, which a plain matrix product rounds unevenly."""
    vector = torch.randn(1, dim, generator=torch.Generator().manual_seed(dim))
    owners = torch.arange(7).repeat_interleave(2)
    ranking = rank(vector.repeat(7, 1), vector.repeat(14, 1), owners, similarity, top=1)
    assert (ranking.image_ranks.tolist(), ranking.image_ties.tolist()) == ([13] * 7, [12] * 7)
    assert (ranking.caption_ranks.tolist(), ranking.caption_ties.tolist()) == ([7] * 14, [6] * 14)


def test_a_small_example_has_the_ranks_and_ties_counted_by_hand():
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    captions = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.6, 0.8]])
    # Scores: 1, .6, 0, .6 | 0, .8, 1, .8 | .6, 1, .8, 1; captions 0 and 1 belong to image 0.
    ranking = rank(images, captions, torch.tensor([0, 0, 1, 2]), cosine, top=4)
    assert ranking.image_ranks.tolist() == [1, 1, 2]  # caption 1 scores the same as image 2's own
    assert ranking.image_ties.tolist() == [0, 0, 1]
    assert ranking.caption_ranks.tolist() == [1, 3, 1, 1]
    assert ranking.caption_ties.tolist() == [0, 0, 0, 0]
    assert ranking.image_best.tolist() == [[0, 1, 3, 2], [2, 1, 3, 0], [1, 3, 2, 0]]


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
