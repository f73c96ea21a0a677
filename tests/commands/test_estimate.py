from dataclasses import replace

import pytest
import torch
from ruamel.yaml import YAML

from fne.commands.estimate import Pace, Work, hours, pace
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


def test_hours_are_steps_and_validations_of_all_epochs():
    assert hours(train(), WORK, Pace(step=3600, encode=0)) == pytest.approx(3 * 10)
    assert hours(train(), WORK, Pace(step=0, encode=3600)) == pytest.approx(3 * 5)
    assert hours(train(captions="all"), WORK, Pace(step=3600, encode=0)) == pytest.approx(3 * 50)
    assert hours(train(epochs=[3, 4]), WORK, Pace(step=3600, encode=0)) == pytest.approx(7 * 10)
    assert hours(train(validate_every=5), WORK, Pace(step=0, encode=3600)) == pytest.approx(6 * 5)
    assert hours(train(), replace(WORK, train_images=101), Pace(step=3600, encode=0)) == pytest.approx(3 * 11)


def test_every_method_can_be_timed():
    small = {"embed_dim": 4, "word_dim": 3, "batch": 4}
    methods = {}
    for each in every_preset():
        keys = [key for key in each.overrides if key.startswith("train.")]
        own = {key.removeprefix("train."): each.overrides[key] for key in keys}
        kind = [own[key] for key in ("image_head", "similarity", "loss", "hardest", "optimizer", "clip_by")]
        methods[str(kind)] = own
    for own in methods.values():
        found = pace(TRAIN | own | small, WORK, torch.device("cpu"))
        assert found.step > 0
        assert found.encode > 0
