import pytest
import torch

from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.model import Matcher, Shape, new_matcher
from fne.matching.text_encoders import TEXT_ENCODERS

SHAPE = Shape("linear", "gru", "cosine", False, features=16, vocabulary_size=12, word_dim=5, embed_dim=8)


@pytest.mark.parametrize("name", IMAGE_HEADS)
def test_every_head_maps_features_to_the_joint_space(name):
    assert IMAGE_HEADS[name](16, 8)(torch.randn(3, 16)).shape == (3, 8)


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_a_caption_does_not_depend_on_its_neighbors_or_its_padding(name):
    torch.manual_seed(0)
    encoder = TEXT_ENCODERS[name](12, 5, 8).eval()
    alone = encoder(torch.tensor([[3, 4]]), torch.tensor([2]))
    together = encoder(torch.tensor([[1, 2, 3, 4], [3, 4, 9, 9]]), torch.tensor([4, 2]))
    assert torch.allclose(alone[0], together[1], atol=1e-6)


def test_the_gru_is_that_of_the_equations_step_by_step():
    torch.manual_seed(0)
    encoder = TEXT_ENCODERS["gru"](12, 5, 8)
    cell = torch.nn.GRUCell(5, 8)
    cell.load_state_dict(
        {name.removesuffix("_l0"): value for name, value in encoder.reader.state_dict().items()}
    )
    state = torch.zeros(1, 8)
    for word in (3, 7, 2):
        state = cell(encoder.words(torch.tensor([word])), state)
    found = encoder(torch.tensor([[3, 7, 2]]), torch.tensor([3]))
    assert torch.allclose(found, state, atol=1e-6)


def test_vectors_have_length_one():
    matcher = new_matcher(SHAPE, seed=0)
    images = matcher.embed_images(torch.randn(3, 16))
    captions = matcher.embed_captions(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]))
    assert torch.allclose(images.norm(dim=1), torch.ones(3))
    assert torch.allclose(captions.norm(dim=1), torch.ones(2))
    assert (images < 0).any()


def test_absolute_values_come_after_the_normalization():
    absolute = Matcher(Shape("linear", "gru", "order", True, 16, 12, 5, 8))
    images = absolute.embed_images(torch.randn(3, 16))
    assert (images >= 0).all()
    assert torch.allclose(images.norm(dim=1), torch.ones(3))


def test_the_seed_alone_decides_fresh_weights():
    torch.manual_seed(99)
    first = new_matcher(SHAPE, seed=1).state_dict()
    second = new_matcher(SHAPE, seed=1).state_dict()
    other = new_matcher(SHAPE, seed=2).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["image_head.weight"], other["image_head.weight"])


def test_fresh_weights_leave_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    new_matcher(SHAPE, seed=1)
    assert torch.equal(torch.rand(1), expected)
