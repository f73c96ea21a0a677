from dataclasses import replace

import pytest
import torch
from ruamel.yaml import YAML

from fne.cli.timing import Estimate, Timing, Workload, estimate, time_training
from fne.core.moved_keys import put
from fne.papers.presets import every_preset
from tests.support.imports import ROOT

TRAIN = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")["train"]
WORK = Workload(features=10, words=20, train_images=100, val_images=10)
VARIANT_KEYS = (
    "image_head",
    "similarity",
    "loss",
    "losses.max_hinge.hardest",
    "optimizer",
    "clip_by",
)


def train(**changes):
    return (
        TRAIN
        | {"batch": 10, "epochs": 3, "validate_every": 0, "captions": "one", "loss": "sum_hinge"}
        | {"learning_rate": 0.001}
        | changes
    )


def hours(settings, work, step=0.0, encode=0.0):
    return estimate(settings, work, Timing(step, encode, timed=1, steps=2)).hours


def test_the_estimate_counts_steps_and_validations_of_all_epochs():
    assert hours(train(), WORK, step=3600) == pytest.approx(3 * 10)
    assert hours(train(), WORK, encode=3600) == pytest.approx(3 * 5)
    assert hours(train(captions="all"), WORK, step=3600) == pytest.approx(3 * 50)
    assert hours(train(epochs=[3, 4]), WORK, step=3600) == pytest.approx(7 * 10)
    assert hours(train(validate_every=5), WORK, encode=3600) == pytest.approx(6 * 5)
    assert hours(train(), replace(WORK, train_images=101), step=3600) == pytest.approx(3 * 11)
    assert hours(train(), replace(WORK, val_images=11), encode=3600) == pytest.approx(3 * 6)


def test_a_short_epoch_is_timed_completely():
    small = train(embed_dim=4, word_dim=3, batch=10)
    found = time_training(small, WORK, torch.device("cpu"), max_seconds=600)
    assert (found.timed, found.steps) == (10, 10)
    assert estimate(small, WORK, found) == Estimate(
        3 * (10 * found.step + 5 * found.encode) / 3600, "one epoch timed here"
    )


def test_a_long_epoch_is_timed_partly_and_the_basis_says_so():
    found = time_training(train(embed_dim=4, word_dim=3, batch=10), WORK, torch.device("cpu"), max_seconds=0)
    assert (found.timed, found.steps) == (3, 10)
    assert found.basis == "3 of the 10 steps of an epoch, timed here"


def test_every_method_can_be_timed():
    small = {"embed_dim": 4, "word_dim": 3, "batch": 4}
    methods = {}
    for each in every_preset():
        keys = [key for key in each.overrides if key.startswith("train.")]
        own = {key.removeprefix("train."): each.overrides[key] for key in keys}
        kind = [own.get(key) for key in VARIANT_KEYS]
        methods[str(kind)] = own
    for own in methods.values():
        changed = dict(TRAIN)
        for key, value in (own | small).items():
            put(changed, key, value)
        found = time_training(changed, WORK, torch.device("cpu"), max_seconds=0)
        assert found.step > 0
        assert found.encode > 0
