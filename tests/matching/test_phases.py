import pytest

from fne.matching.phases import Phase, unfold

VALUES = {"loss": ["sum_hinge"], "margin": [0.2], "learning_rate": [1e-3], "epochs": [4], "patience": [2]}


def test_single_values_are_one_phase():
    assert unfold(VALUES) == [Phase("sum_hinge", 0.2, 1e-3, 4, 2)]


def test_a_list_makes_phases_and_single_values_serve_them_all():
    phases = unfold(VALUES | {"loss": ["sum_hinge", "max_hinge"], "epochs": [3, 5]})
    assert [(phase.loss, phase.epochs, phase.margin) for phase in phases] == [
        ("sum_hinge", 3, 0.2),
        ("max_hinge", 5, 0.2),
    ]


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(
        ValueError, match="must have one value or equal lengths, but loss has 2, epochs has 3"
    ):
        unfold(VALUES | {"loss": ["sum_hinge", "max_hinge"], "epochs": [1, 2, 3]})


def test_an_empty_list_is_refused():
    with pytest.raises(ValueError, match="must have one value or equal lengths, but loss has 0"):
        unfold(VALUES | {"loss": []})
