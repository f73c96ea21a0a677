from dataclasses import replace

import torch

from fne.matching.model import Matcher, Shape, new_matcher

SHAPE = Shape("linear", "gru", "cosine", False, 16, 12, 5, 8, text_encoder_settings={"initial": "torch"})


def test_vectors_have_length_one():
    matcher = new_matcher(SHAPE, seed=0)
    images = matcher.embed_images(torch.randn(3, 16))
    captions = matcher.embed_captions(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]))
    assert torch.allclose(images.norm(dim=1), torch.ones(3))
    assert torch.allclose(captions.norm(dim=1), torch.ones(2))
    assert (images < 0).any()


def test_absolute_values_come_after_the_normalization():
    absolute = Matcher(replace(SHAPE, similarity="order", absolute=True))
    images = absolute.embed_images(torch.randn(3, 16))
    assert (images >= 0).all()
    assert torch.allclose(images.norm(dim=1), torch.ones(3))


def test_the_seed_alone_decides_fresh_weights():
    torch.manual_seed(99)
    expected = torch.rand(1)
    torch.manual_seed(99)
    first = new_matcher(SHAPE, seed=1).state_dict()
    second = new_matcher(SHAPE, seed=1).state_dict()
    other = new_matcher(SHAPE, seed=2).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["image_head.weight"], other["image_head.weight"])
    assert torch.equal(torch.rand(1), expected), "the global generator is left alone"
