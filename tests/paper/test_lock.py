import pytest

from fne.core.errors import InputError
from fne.paper.lock import read_lock

LOCK = b"""
schema: '2.0'
stages:
  standardize:
    deps: [{path: features/activations, md5: a1.dir}, {path: weights.yaml, hash: md5, md5: b2}]
    params: {params.yaml: {embed.source: features/activations}}
  train:
    params: {params.yaml: {train: {seed: 3, margin: 1e-05}}, other.yaml: {train: {seed: 4}}}
    outs: [{path: model, md5: c3}]
"""


def test_parameters_come_by_section_and_hashes_by_path():
    assert read_lock(LOCK, "dvc.lock", "params.yaml") == (
        {"embed": {"source": "features/activations"}, "train": {"seed": 3, "margin": 0.00001}},
        {"features/activations": "a1.dir", "weights.yaml": "b2", "model": "c3"},
    )


def test_an_empty_lock_records_nothing():
    assert read_lock(b"", "dvc.lock", "params.yaml") == ({}, {})


def test_a_lock_with_conflicts_is_refused_in_one_line():
    with pytest.raises(InputError, match="^workspace: dvc.lock is not valid YAML: .*") as caught:
        read_lock(b"<<<<<<< HEAD\nstages: {}\n=======\n", "workspace: dvc.lock", "params.yaml")
    assert "\n" not in caught.value.message
