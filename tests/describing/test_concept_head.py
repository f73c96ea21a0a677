import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.describing.concept_head import ROWS, USER_TAG_SUMS, ConceptHead, UserTagReader, log_odds
from fne.describing.losses import logistic


def drawn_labels(seed, images=50, concepts=6):
    generator = np.random.default_rng(seed)
    return generator.random((images, concepts)) < generator.random(concepts)


@pytest.mark.parametrize("hidden", [None, 8])
def test_before_training_the_loss_is_the_entropy_of_the_concepts(hidden):
    labels = drawn_labels(0)
    concept_head = ConceptHead(5, 6, hidden)
    concept_head.start(log_odds(labels.sum(axis=0), len(labels)))
    loss = logistic(concept_head(torch.randn(50, 5)), torch.from_numpy(labels)).mean().item()
    frequency = labels.mean(axis=0)
    entropy = -(frequency * np.log(frequency) + (1 - frequency) * np.log(1 - frequency)).sum()
    assert loss == pytest.approx(entropy, rel=1e-5)


def test_log_odds_of_all_or_no_images_are_finite():
    odds = log_odds(np.array([0, 3, 10]), 10)
    assert torch.isfinite(odds).all()
    assert odds[0] == -odds[2] == pytest.approx(np.log(0.5 / 9.5))


@pytest.mark.parametrize(("counts", "images"), [([0], 0), ([-1], 3), ([4], 3)])
def test_counts_that_no_images_can_have_are_refused(counts, images):
    with pytest.raises(InputError, match="concept_head: "):
        log_odds(np.array(counts), images)


def test_the_hidden_layer_is_what_concepts_are_predicted_from():
    linear, deep = ConceptHead(5, 3), ConceptHead(5, 3, hidden=7)
    rows = torch.randn(4, 5)
    assert torch.equal(linear.encode(rows), rows)
    assert linear.width == 5
    assert deep.width == 7
    assert deep.encode(rows).shape == (4, 7)
    assert (deep.encode(rows) >= 0).all()
    assert torch.equal(deep(rows), deep.classify(deep.encode(rows)))


def test_standardized_rows_have_mean_zero_and_deviation_one():
    rows = torch.randn(40, 3, dtype=torch.float64) * torch.tensor([3.0, 0.1, 0.0]) + 5
    mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
    deviation[2] = 0
    scaled = ROWS["standardized"](mean, deviation)(rows)
    assert torch.allclose(scaled.mean(dim=0), torch.zeros(3, dtype=torch.float64), atol=1e-9)
    assert scaled.std(dim=0, correction=0).tolist() == pytest.approx([1, 1, 0])


def test_unit_rows_have_length_one_and_raw_rows_stay():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    mean, deviation = rows.mean(dim=0), rows.std(dim=0)
    assert ROWS["unit"](mean, deviation)(rows).tolist() == [pytest.approx([0.6, 0.8]), [0, 0]]
    assert torch.equal(ROWS["raw"](mean, deviation)(rows), rows)


def test_scaling_is_kept_with_the_weights_but_not_learned():
    scaling = ROWS["standardized"](torch.ones(2), torch.ones(2))
    assert set(scaling.state_dict()) == {"shift", "scale"}
    assert list(scaling.parameters()) == []


def test_user_tags_say_nothing_before_training():
    image = torch.randn(3, 4)
    user_tags = UserTagReader(10, 5, 4)(torch.ones(3, 10))
    assert torch.equal(USER_TAG_SUMS["logits"](image, user_tags), torch.sigmoid(image))
