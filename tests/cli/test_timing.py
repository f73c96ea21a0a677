from dataclasses import replace

import pytest
import torch
from ruamel.yaml import YAML

from fne.cli.timing import Estimate, Timing, Workload, estimate, time_training, time_tuning, tuning_hours
from fne.core.errors import InputError
from fne.core.moved_keys import put
from fne.core.params import load_params, load_runtime
from fne.papers.presets import every_preset
from fne.tasks.finetuning.settings import Finetune
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


def tuning(**changes):
    return Finetune.model_validate(load_params(ROOT / "params.yaml")["finetune"] | {"batch": 10} | changes)


def test_the_estimate_of_a_fine_tuning_counts_the_images_of_all_epochs_and_validations():
    work = replace(WORK, train_images=105, val_images=8)
    assert tuning_hours(tuning(epochs=[3, 4], learning_rate=[0.1, 0.01]), work, 3600) == pytest.approx(
        7 * 100 + 8 * 8 / 4
    )
    assert tuning_hours(tuning(epochs=1), replace(work, train_images=6), 3600) == pytest.approx(6 + 2 * 8 / 4)


def test_a_network_is_timed_as_far_as_the_layer_that_the_model_reads():
    runtime, device = load_runtime(ROOT / "params.yaml"), torch.device("cpu")
    assert time_tuning(tuning(epochs=1, first="conv5"), "alexnet", "conv5", runtime, device) > 0
    with pytest.raises(InputError, match="finetune.first is 'fc6', which comes after 'conv5'"):
        time_tuning(tuning(epochs=1, first="fc6"), "alexnet", "conv5", runtime, device)
