import json
import shutil
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image as Picture

from fne.api import load_model
from fne.cli import main as fne
from fne.core.errors import InputError
from fne.extraction.weights import load_weights
from fne.matching.model_file import read_model_file
from fne.report.sources import RSUM, read_tables
from fne.store.history import read_history_seal
from fne.store.rows import Rows
from fne.store.tensors import NETWORK, read_sealed, write_sealed
from tests.support.finetuning import TUNING, write_tunable_project
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import invoke as run


def write_trained(folder):
    """A project with a model that was trained on a layer of a network."""
    shutil.copy(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "weights", folder / "weights")
    with chdir(folder):
        write_tunable_project(folder)
    change_params(folder, {"finetune": TUNING})


@pytest.fixture
def project(enter):
    enter(write_trained)
    return Path.cwd()


@pytest.fixture
def tuned(enter):
    """The same project with the vectors of both models."""
    enter(write_trained, "encode", "finetune", "encode_tuned")
    return Path.cwd()


def tune(project, **changes):
    change_params(project, {"finetune": TUNING | changes})
    return run("finetune")


def search(*arguments):
    return CliRunner().invoke(fne, ["search", *arguments, "--model", "tuned"])


def evaluate(vectors, prefix=""):
    names = ("retrieval.json", "intervals.json", "curves", "ranks.h5")
    written = [f"metrics/{prefix}{name}" for name in names]
    arguments = [f"{vectors}/images", f"{vectors}/captions", "data/captions.jsonl", *written]
    return CliRunner().invoke(import_module("stages.evaluate").main, arguments)


def fault(result):
    assert result.exit_code == 2, result.output
    return result.output.splitlines()[-1]


def test_a_tuned_network_makes_other_vectors_and_everything_follows(project):
    result = tune(project)
    assert result.exit_code == 0, result.output
    assert "fine-tuning from layer 'conv2': 6 images per epoch, 2 epochs, about " in result.output
    assert "cheaper: fewer finetune.epochs" in result.output
    assert "validation rsum " in result.output
    file = read_model_file(Path("models/tuned.safetensors"))
    network = {name.removeprefix(NETWORK) for name in file.weights if name.startswith(NETWORK)}
    assert network == {f"features.{place}.{name}" for place in (0, 3) for name in ("weight", "bias")}
    assert file.artifact.lineage.keys() >= {"model", "weights", "images", "train_images", "tokens"}
    assert file.artifact.settings["first"] == "conv2"
    assert read_history_seal(Path("models/tuning")).points == 3  # before the first step, and after each epoch
    found = json.loads(Path("metrics/tuning.json").read_text())
    curve = read_tables(Path("models/tuning"), first=0).series[RSUM]
    assert (found["before"], found["validation"]["rsum"]) == (curve[0], curve[2])
    assert (found["best_epoch"], found["epochs"], found["updates"]) == (2, 2, 2)
    assert found["validation"]["images"] == 4
    assert file.artifact.settings["started"] == found["started"]
    assert run("encode_tuned").exit_code == 0
    lineage = Rows.open(Path("vectors/tuned/images")).artifact.lineage
    assert lineage["tuned"]["digest"] == file.artifact.digest
    assert evaluate("vectors/tuned", "tuned_").exit_code == 0
    assert json.loads(Path("metrics/tuned_retrieval.json").read_text())["test_full"]["images"] == 4
    searched = search("a red ground")
    assert searched.exit_code == 0, searched.output
    described = CliRunner().invoke(fne, ["inspect", "models/tuned.safetensors"])
    assert "tuned network and model" in described.output


def test_weights_of_frozen_layers_keep_their_bits(tuned):
    _, tensors = read_sealed(Path("models/tuned.safetensors"))
    state = load_weights(Path("weights/random.yaml"), "alexnet").state
    for name in ("features.0.weight", "features.0.bias"):
        assert torch.equal(tensors[f"{NETWORK}{name}"], state[name])
    assert not torch.equal(tensors[f"{NETWORK}features.3.weight"], state["features.3.weight"])


def test_a_network_that_was_not_changed_gives_the_vectors_of_the_model(tuned):
    rows = Rows.open(Path("vectors/images"))
    ids, before = rows.ids, rows.read(rows.ids)
    # The same file with the weights that it started from.
    description, tensors = read_sealed(Path("models/tuned.safetensors"))
    _, model = read_sealed(Path("models/matching/model.safetensors"))
    state = load_weights(Path("weights/random.yaml"), "alexnet").state
    same = {name: state[name.removeprefix(NETWORK)] for name in tensors if name.startswith(NETWORK)}
    write_sealed(Path("models/tuned.safetensors"), description, model | same)
    run("encode_tuned")
    found = Rows.open(Path("vectors/tuned/images"))
    assert found.ids == ids
    assert np.allclose(found.read(ids), before, atol=1e-5)


def test_a_new_photo_is_searched_with_the_tuned_network(tuned):
    known = Rows.open(Path("vectors/tuned/images"))
    # The same pixels in another file: not of the catalog, but with the same vector.
    with Picture.open("photos/03.png") as picture:
        picture.save("new.bmp")
    for model in (load_model(tuned, model="tuned"), load_model("models/tuned.safetensors", root=tuned)):
        found = model.encode_images(["new.bmp", "03.png"])
        assert np.allclose(found, known.read(["03.png"])[0], atol=1e-5)
    result = search("new.bmp")
    assert result.exit_code == 0, result.output
    assert not load_model("models/tuned.safetensors").settings.keys() ^ model.settings.keys()


def test_without_its_name_the_model_before_the_tuning_is_searched(project):
    run("encode")
    before = CliRunner().invoke(fne, ["search", "a red ground"]).output
    tune(project)
    run("encode_tuned")
    assert CliRunner().invoke(fne, ["search", "a red ground"]).output == before
    assert search("a red ground").output != before
    assert load_model(project).path == project / "models/matching/model.safetensors"


@pytest.mark.parametrize("absent", ["models/tuned.safetensors", "vectors/tuned/images"])
def test_a_tuned_model_that_is_not_there_is_refused_with_the_command_that_makes_it(project, absent):
    if absent.startswith("vectors"):
        tune(project)
    message = (
        f"{absent}: is missing; run `dvc repro pipelines/finetuning/dvc.yaml`, which makes the tuned model"
    )
    assert message in fault(search("a red ground"))
    assert message in fault(CliRunner().invoke(fne, ["serve", "--port", "0", "--model", "tuned"]))
    with pytest.raises(InputError, match="which makes the tuned model"):
        load_model(project, model="tuned")


def test_the_same_inputs_give_the_same_bytes(project):
    tune(project)
    first = Path("models/tuned.safetensors").read_bytes()
    shutil.rmtree(".fne")
    assert run("finetune").exit_code == 0
    assert Path("models/tuned.safetensors").read_bytes() == first
    result = run("finetune")
    assert "this training has finished before" in result.output
    assert "fine-tuning from layer" not in result.output  # nothing is measured for it
    assert Path("models/tuned.safetensors").read_bytes() == first


def test_vectors_of_the_model_before_are_refused_with_both_digests(tuned):
    model, after = (
        read_model_file(Path("models", name)).artifact.digest[:12]
        for name in ("matching/model.safetensors", "tuned.safetensors")
    )
    for side in ("captions", "images"):
        shutil.rmtree(f"vectors/tuned/{side}")
        shutil.copytree(f"vectors/{side}", f"vectors/tuned/{side}")
        if side == "captions":
            message = (
                f"vectors/tuned/images was made from tuned {after}…, but vectors/tuned/captions was made"
            )
            assert message in fault(evaluate("vectors/tuned"))
    message = fault(search("a red ground"))
    assert (
        f"tuned.safetensors holds tuned {after}…, but vectors/tuned/images was made from model {model}…"
        in message
    )
    assert message.endswith("; run `dvc repro pipelines/finetuning/dvc.yaml`")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": "conv7"}, "params.yaml: finetune.first: 'conv7' is not one of 'all', 'conv1', 'conv2', the"),
        ({"first": "fc6"}, "params.yaml: finetune.first is 'fc6', which comes after 'conv2', the last layer"),
    ],
)  # fmt: skip
def test_unknown_layers_are_refused(project, changes, message):
    assert message in fault(tune(project, **changes))


def test_an_image_that_has_changed_is_refused(project):
    Picture.new("RGB", (300, 300)).save("photos/01.png")
    assert fault(tune(project)).startswith("Error: photos/01.png: has changed since the catalog was made: ")
