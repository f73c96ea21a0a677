import pytest
import torch

from fne.training.progress import Scores
from fne.training.task import weighted_sum


def test_an_objective_is_the_weighted_sum_of_its_terms():
    first, second = torch.tensor(3.0, requires_grad=True), torch.tensor(4.0, requires_grad=True)
    loss = weighted_sum([("rank", 2.0, first), ("instance", 0.5, second)])
    loss.total.backward()
    assert loss.total.item() == 8.0
    assert (first.grad.item(), second.grad.item()) == (2.0, 0.5)
    assert {name: value.item() for name, value in loss.terms.items()} == {"rank": 3.0, "instance": 4.0}
    assert not any(value.requires_grad for value in loss.terms.values())


def test_one_term_of_weight_one_keeps_its_bits():
    value = torch.tensor(0.1) * 3
    assert weighted_sum([("rank", 1.0, value)]).total.item() == value.item()


def test_an_objective_without_terms_is_refused():
    with pytest.raises(ValueError, match="an objective needs at least one term"):
        weighted_sum([])


def test_the_first_score_chooses_the_best_weights():
    scores = Scores({"rsum": 5.0, "R@1": 9.0})
    assert (scores.name, scores.main) == ("rsum", 5.0)
