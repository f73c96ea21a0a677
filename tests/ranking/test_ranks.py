import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fne.ranking import ranks
from fne.ranking.ranks import rank
from fne.ranking.similarities import cosine


def plain_ranks(scores: list[list[float]], caption_image: list[int]) -> tuple[list[int], list[int]]:
    """Ranks by sorting, wrong items before true ones where scores are equal."""
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
def worlds(draw):
    """Few distinct coordinates, so that ties are common; any number of captions per image."""
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


@given(worlds(), st.integers(1, 5))
@settings(deadline=None)
def test_ranks_are_those_of_sorting_in_plain_python(world, block):
    images, captions, caption_image = world
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "BLOCK", block)
        ranking = rank(images, captions, torch.tensor(caption_image), cosine, top=3)
    expected = plain_ranks((images @ captions.T).tolist(), caption_image)
    assert (ranking.image_ranks.tolist(), ranking.caption_ranks.tolist()) == expected


@given(worlds(), st.integers(1, 5))
@settings(deadline=None)
def test_the_best_are_those_of_a_stable_sort_whatever_the_blocks(world, block):
    images, captions, caption_image = world
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "BLOCK", block)
        ranking = rank(images, captions, torch.tensor(caption_image), cosine, top=3)
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


def test_a_collapsed_model_ranks_last_not_first():
    ranking = rank(torch.ones(4, 2), torch.ones(8, 2), torch.arange(4).repeat_interleave(2), cosine, top=1)
    assert ranking.image_ranks.tolist() == [7] * 4
    assert ranking.caption_ranks.tolist() == [4] * 8


def test_nan_is_refused():
    images = torch.tensor([[1.0], [float("nan")]])
    with pytest.raises(ValueError, match="2 scores of images 0 and following are NaN"):
        rank(images, torch.ones(2, 1), torch.arange(2), cosine, top=1)
