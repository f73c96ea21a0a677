import pytest
import torch

from fne.describing.decoder import INJECTIONS
from fne.describing.model import CONDITIONS, DescribingShape, new_describing_model
from fne.describing.recurrent_cells import CELLS

SHAPE = {
    "features": 5,
    "rows": "standardized",
    "concepts": 4,
    "hidden": 3,
    "condition": "concepts",
    "outputs": 5,
    "word_dim": 2,
    "units": 6,
    "cell": "lstm_relu",
    "inject": "state",
}
ROWS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


def small_model(seed=0, **changes):
    """A model with weights that are all random, so that every part has an effect."""
    made = new_describing_model(DescribingShape(**(SHAPE | changes)), seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for value in [*made.parameters(), made.prior]:
            value.copy_(torch.randn(value.shape, generator=generator))
    return made


def test_the_seed_alone_decides_the_first_weights():
    torch.manual_seed(5)
    first = new_describing_model(DescribingShape(**SHAPE), 3).state_dict()
    second = new_describing_model(DescribingShape(**SHAPE), 3).state_dict()
    other = new_describing_model(DescribingShape(**SHAPE), 4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["decoder.words"], other["decoder.words"])


def test_rows_are_scaled_by_what_was_fitted():
    made = small_model()
    made.fit_rows(torch.full((5,), 2.0), torch.tensor([2.0, 0, 1, 1, 1]))
    assert made.see(torch.tensor([[4.0, 9, 2, 3, 1]])).rows.tolist() == [[1, 0, 0, 1, -1]]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_condition_is_what_its_name_says(condition):
    made = small_model(condition=condition)
    seen = made.see(ROWS)
    expected = {"concepts": torch.sigmoid(seen.logits), "embedding": seen.rows, "hidden": seen.encoded}
    assert torch.equal(made.condition(seen), expected[condition])
    assert made.condition(seen).shape == (7, {"concepts": 4, "embedding": 5, "hidden": 3}[condition])
    assert made.decoder.condition.in_features == made.condition(seen).shape[1]


def test_without_a_concept_head_there_are_no_concepts():
    made = small_model(concepts=0, condition="embedding")
    seen = made.see(ROWS)
    assert (seen.encoded, seen.logits) == (None, None)
    with pytest.raises(ValueError, match="has no concepts"):
        made.start_concepts(torch.zeros(0))
    with pytest.raises(ValueError, match="has no concepts"):
        _ = seen.probabilities
    with pytest.raises(ValueError, match="has no 'concepts'"):
        small_model(concepts=0, outputs=0).condition(seen)


def test_without_a_decoder_only_concepts_are_seen():
    made = small_model(outputs=0)
    assert made.decoder is None
    assert made.see(ROWS).probabilities.shape == (7, 4)


def test_user_tags_add_evidence_to_the_logits():
    made = small_model(user_tags=3, user_tag_hidden=2)
    user_tags = torch.tensor([[1.0, 0, 1]]).expand(7, 3)
    alone, both = small_model().see(ROWS), made.see(ROWS, user_tags)
    made.concept_head.load_state_dict(small_model().concept_head.state_dict())
    both = made.see(ROWS, user_tags)
    assert torch.equal(both.image_logits, alone.image_logits)
    torch.testing.assert_close(both.logits - both.image_logits, both.user_tag_logits - made.prior)
    with pytest.raises(ValueError, match="reads user tags"):
        made.see(ROWS)


def test_probabilities_of_image_and_user_tags_can_be_added():
    made = small_model(user_tags=3, user_tag_hidden=2, user_tag_sum="probabilities")
    seen = made.see(ROWS, torch.ones(7, 3))
    summed = torch.sigmoid(seen.image_logits) + torch.sigmoid(seen.user_tag_logits)
    torch.testing.assert_close(seen.probabilities, summed.clamp(1e-6, 1 - 1e-6))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("inject", INJECTIONS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_gradients_reach_every_part_that_a_decoder_uses(cell, inject, condition):
    made = small_model(cell=cell, inject=inject, condition=condition)
    logits, running = made.decoder.begin(made.condition(made.see(ROWS)))
    logits, _ = made.decoder.advance(running, torch.zeros(7, dtype=torch.long))
    logits.square().sum().backward()
    moved = made.concept_head.hidden[0].weight.grad
    assert (moved is not None) == (condition != "embedding")
    assert all(each.grad.isfinite().all() for each in made.decoder.parameters())
