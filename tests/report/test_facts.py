"""What the page says about the run."""

import pytest

from fne.report.facts import ancestors, counts, phases, unit_of_history
from fne.report.history import History
from fne.store.catalog import Captioned


def lineage_of(**settings):
    return {name: {"digest": name, "settings": each} for name, each in settings.items()}


def test_ancestors_stand_in_the_order_of_their_making_and_strangers_last():
    lineage = lineage_of(aaa={}, model={}, weights={}, images={})
    assert [ancestor.name for ancestor in ancestors(lineage)] == ["images", "weights", "model", "aaa"]


def test_shares_are_no_setting():
    [ancestor] = ancestors(lineage_of(embeddings={"kind": "fne", "shares": {"fc7": {"minus": 0.1}}}))
    assert ancestor.settings == {"kind": "fne"}


def test_images_are_counted_by_split_and_sentences_in_all():
    records = [Captioned(str(number), "train", ("a", "b"), ()) for number in range(1200)]
    records += [Captioned("x", "test", ("c",), ()), Captioned("y", "gallery", (), ())]
    found = counts(records, lineage_of(tokens={"words": 12345}))
    assert found == {
        "Images": "1,200 train, 1 test, 1 gallery",
        "Sentences": "2,401",
        "Known words": "12,345",
    }


def test_phases_tell_what_differs_and_when_they_ran():
    model = {"loss": ["sum_hinge", "max_hinge"], "margin": [0.2], "learning_rate": [0.001, 0.0001]}
    history = History({"train/phase": {1: 1, 2: 1, 3: 2}})
    assert phases(lineage_of(model=model), history) == [
        {"loss": "sum_hinge", "margin": "0.2", "learning_rate": "0.001", "epochs": "1–2"},
        {"loss": "max_hinge", "margin": "0.2", "learning_rate": "0.0001", "epochs": "3–3"},
    ]


@pytest.mark.parametrize("model", [{}, {"loss": ["sum_hinge"], "margin": [0.2]}, {"loss": "sum_hinge"}])
def test_a_single_phase_is_not_worth_a_table(model):
    assert phases(lineage_of(model=model), History({})) == []


@pytest.mark.parametrize(("every", "unit"), [(0, "epoch"), (100, "validation")])
def test_a_step_of_the_history_is_an_epoch_unless_training_validates_more_often(every, unit):
    assert unit_of_history(lineage_of(model={"validate_every": every})) == unit
