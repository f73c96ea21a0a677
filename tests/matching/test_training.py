import json

import pytest
import torch

from fne.core.errors import InputError
from fne.matching.history import writing_history
from fne.matching.model import Shape, new_matcher
from fne.matching.phases import Phase
from fne.matching.training import Schedule, train
from fne.matching.validation import validate

SHAPE = Shape("linear", "gru", "cosine", False, features=16, vocabulary_size=12, word_dim=5, embed_dim=8)
SUM = Phase("sum_hinge", 0.2, 0.01, epochs=30, patience=30)


def run(pairs, *phases, shape=SHAPE, batch=4):
    matcher, epochs = new_matcher(shape, seed=0), []
    best = train(matcher, Schedule(list(phases), batch, clip=2.0, seed=0), pairs, pairs, epochs.append)
    return matcher, best, epochs


def test_training_learns_what_can_be_learnt(pairs):
    before = validate(new_matcher(SHAPE, seed=0), pairs)
    _, best, epochs = run(pairs, SUM)
    assert before.rsum < 450
    assert best.validation.rsum > 580
    assert epochs[-1].loss < epochs[0].loss / 3


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_a_second_phase_starts_from_the_best_weights_of_the_first(pairs, similarity):
    shape = Shape("linear", "gru", similarity, similarity == "order", 16, 12, 5, 8)
    first = Phase("sum_hinge", 0.2, 0.01, epochs=8, patience=8)
    second = Phase("max_hinge", 0.2, 1e-9, epochs=2, patience=2)
    _, best, epochs = run(pairs, first, second, shape=shape)
    assert [epoch.phase for epoch in epochs] == [1] * 8 + [2] * 2
    assert [epoch.number for epoch in epochs] == list(range(10))
    assert (
        epochs[8].validation.rsum
        == max(epoch.validation.rsum for epoch in epochs[:8])
        == best.validation.rsum
    )


def test_the_model_ends_with_the_weights_of_the_best_epoch(pairs):
    matcher, best, epochs = run(pairs, Phase("sum_hinge", 0.2, 0.05, epochs=25, patience=25))
    assert best.validation.rsum == max(epoch.validation.rsum for epoch in epochs)
    assert validate(matcher, pairs) == best.validation


def test_a_phase_that_does_not_improve_ends_early(pairs):
    _, _, epochs = run(pairs, Phase("sum_hinge", 0.2, 1e-9, epochs=30, patience=3))
    assert len(epochs) == 4


def test_the_same_seed_gives_the_same_weights(pairs):
    first, second = (run(pairs, SUM)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_loss_that_is_not_finite_stops_naming_step_and_images(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    torch.nn.init.constant_(matcher.image_head.weight, float("nan"))
    with pytest.raises(InputError, match=r"the loss is nan at step 1 of the epoch, with images \d\.png, "):
        train(matcher, Schedule([SUM], 4, 2.0, 0), pairs, pairs, lambda epoch: None)


def test_validation_scores_that_are_nan_stop_training(pairs):
    matcher = new_matcher(SHAPE, seed=0)
    torch.nn.init.constant_(matcher.image_head.weight, float("nan"))
    with pytest.raises(InputError, match=r"in validation, \d+ scores .* are NaN; lower train.learning_rate"):
        validate(matcher, pairs)


def test_the_history_holds_every_epoch(pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # dvclive looks for a repository around the working folder
    with writing_history(tmp_path / "history") as tell:
        matcher = new_matcher(SHAPE, seed=0)
        schedule = Schedule([Phase("sum_hinge", 0.2, 0.01, epochs=3, patience=3)], 4, 2.0, 0)
        train(matcher, schedule, pairs, pairs, tell)
    loss = (tmp_path / "history/plots/metrics/train/loss.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in loss] == ["step", "0", "1", "2"]
    assert json.loads((tmp_path / "history/metrics.json").read_text())["train"]["phase"] == 1
