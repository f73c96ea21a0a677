from dataclasses import replace

import pytest
import torch
from ruamel.yaml import YAML

from fne.commands.estimate import Estimate, Pace, Work, estimate, pace
from fne.paper.presets import every_preset
from tests.imports import ROOT

TRAIN = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")["train"]
WORK = Work(features=10, words=20, train_images=100, val_images=10)


def train(**changes):
    return (
        TRAIN
        | {"batch": 10, "epochs": 3, "validate_every": 0, "captions": "one", "loss": "sum_hinge"}
        | changes
    )


def hours(settings, work, step=0.0, encode=0.0):
    return estimate(settings, work, Pace(step, encode, timed=1, steps=2)).hours


def test_hours_are_steps_and_validations_of_all_epochs():
    assert hours(train(), WORK, step=3600) == pytest.approx(3 * 10)
    assert hours(train(), WORK, encode=3600) == pytest.approx(3 * 5)
    assert hours(train(captions="all"), WORK, step=3600) == pytest.approx(3 * 50)
    assert hours(train(epochs=[3, 4]), WORK, step=3600) == pytest.approx(7 * 10)
    assert hours(train(validate_every=5), WORK, encode=3600) == pytest.approx(6 * 5)
    assert hours(train(), replace(WORK, train_images=101), step=3600) == pytest.approx(3 * 11)
    assert hours(train(), replace(WORK, val_images=11), encode=3600) == pytest.approx(3 * 6)


def test_a_whole_epoch_is_timed_where_that_is_short():
    small = train(embed_dim=4, word_dim=3, batch=10)
    found = pace(small, WORK, torch.device("cpu"), most_seconds=600)
    assert (found.timed, found.steps) == (10, 10)
    assert estimate(small, WORK, found) == Estimate(
        3 * (10 * found.step + 5 * found.encode) / 3600, "one epoch timed here"
    )


def test_a_long_epoch_is_timed_in_part_and_that_is_said():
    found = pace(train(embed_dim=4, word_dim=3, batch=10), WORK, torch.device("cpu"), most_seconds=0)
    assert (found.timed, found.steps) == (3, 10)
    assert found.basis == "3 of the 10 steps of an epoch, timed here"


def test_every_method_can_be_timed():
    small = {"embed_dim": 4, "word_dim": 3, "batch": 4}
    methods = {}
    for each in every_preset():
        keys = [key for key in each.overrides if key.startswith("train.")]
        own = {key.removeprefix("train."): each.overrides[key] for key in keys}
        kind = [own[key] for key in ("image_head", "similarity", "loss", "hardest", "optimizer", "clip_by")]
        methods[str(kind)] = own
    for own in methods.values():
        found = pace(TRAIN | own | small, WORK, torch.device("cpu"), most_seconds=0)
        assert found.step > 0
        assert found.encode > 0
