import random
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save_file

from fne.core.errors import InputError
from fne.matching.model import Shape, new_matcher
from fne.matching.model_file import (
    FORMAT,
    read_model,
    read_model_file,
    write_model,
    write_tuned,
)
from fne.store.tensors import NETWORK, write_sealed
from tests.faults.edits import flip
from tests.support.refusals import refused

SHAPE = Shape("linear", "gru", "cosine", False, 16, 12, 5, 8, text_encoder_settings={"initial": "torch"})


def write(path):
    lineage = {"tokens": {"digest": "a", "settings": {}}}
    write_model(path, new_matcher(SHAPE, seed=0), {"margin": 0.2}, lineage)
    return path


def test_a_model_comes_back_with_all_that_made_it(tmp_path):
    matcher, artifact = read_model(write(tmp_path / "m.safetensors"))
    fresh = new_matcher(SHAPE, seed=0).state_dict()
    assert matcher.shape == SHAPE
    assert all(torch.equal(value, fresh[name]) for name, value in matcher.state_dict().items())
    assert (artifact.settings, list(artifact.lineage)) == ({"margin": 0.2}, ["tokens"])


def test_a_model_is_read_as_arrays_too(tmp_path):
    matcher, artifact = read_model(write(tmp_path / "m.safetensors"))
    file = read_model_file(tmp_path / "m.safetensors", prefix="text_encoder.words")
    assert (file.artifact, file.shape) == (artifact, asdict(SHAPE))
    assert list(file.weights) == ["text_encoder.words.weight"]
    assert torch.equal(
        torch.from_numpy(file.weights["text_encoder.words.weight"]), matcher.text_encoder.words.weight
    )


@pytest.mark.parametrize("shape", [None, 3, "gru", {}, {"text_encoder": "gru"}])
def test_a_file_with_another_shape_is_no_model(tmp_path, shape):
    header = {**FORMAT.header(), "settings": {}, "lineage": {}, "shape": shape}
    write_sealed(tmp_path / "m", header, {"weight": torch.zeros(1)})
    with pytest.raises(InputError, match=r"m: not a model of fne \(.*\); run `fne verify"):
        read_model(tmp_path / "m")


def test_equal_models_give_equal_bytes(tmp_path):
    assert write(tmp_path / "1").read_bytes() == write(tmp_path / "2").read_bytes()


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_anywhere_is_detected(tmp_path, seed):
    path = write(tmp_path / "m.safetensors")
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    # Half of the flips in the header, which is the smaller part.
    content[chance.randrange(1500 if seed % 2 else len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"m.safetensors: (damaged|has format).*"):
        read_model(path)


def write_tuned_model(path):
    write_tuned(path, new_matcher(SHAPE, seed=1), {"conv1.weight": torch.ones(2)}, {}, {})
    return path


@pytest.mark.parametrize("written", [write, write_tuned_model])
def test_damaged_weights_of_a_model_tuned_or_not_are_refused_with_both_digests(tmp_path, written):
    path = written(tmp_path / "m.safetensors")
    flip(path, 0.999)
    with refused(f"{path}: damaged: expected ", "…, found ", f"…; run `fne verify {path}` to see how"):
        read_model(path)


@pytest.mark.parametrize("size", [0, 5, 300, 2000])
def test_a_truncated_file_is_refused(tmp_path, size):
    path = write(tmp_path / "m.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="damaged, or not a model of fne"):
        read_model(path)


def test_a_missing_file_and_somebody_elses_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file; run `dvc repro`, or `dvc pull` to fetch it"):
        read_model(tmp_path / "m.safetensors")
    save_file({"weight": torch.zeros(1)}, tmp_path / "m.safetensors")
    with pytest.raises(InputError, match="damaged, or not a model of fne"):
        read_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"features": 10**15},
        {"embed_dim": 10**30},
        {"word_dim": -1},
        {"vocabulary_size": "12"},
        {"image_head_settings": {"hidden": [4]}},
        {"text_encoder_settings": 5},
        {"similarity": []},
    ],
)
def test_a_shape_that_no_model_has_is_one_line(tmp_path, change):
    file = tmp_path / "m.safetensors"
    header = {**FORMAT.header(), "settings": {}, "lineage": {}, "shape": asdict(SHAPE) | change}
    write_sealed(file, header, new_matcher(SHAPE, seed=0).state_dict())
    with pytest.raises(InputError, match="not a model of fne"):
        read_model(file)


def test_a_tuned_model_comes_back(tmp_path):
    tuned = tmp_path / "t.safetensors"
    network = {"features.0.weight": torch.ones(2, 3)}
    digest = write_tuned(tuned, new_matcher(SHAPE, seed=1), network, {"margin": 1.0}, {})
    matcher, artifact = read_model(tuned)
    assert (artifact.name, artifact.digest, artifact.settings) == ("tuned", digest, {"margin": 1.0})
    assert artifact.pipeline == "pipelines/finetuning/dvc.yaml"
    fresh = new_matcher(SHAPE, seed=1).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in matcher.state_dict().items())
    assert list(read_model_file(tuned, NETWORK).weights) == ["network.features.0.weight"]
