import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image as Picture

from fne.cli import main as fne
from fne.core.errors import InputError
from fne.matching.model_file import NETWORK, read_model_file
from fne.report.sources import RSUM, read_tables
from fne.store.history import read_history_seal
from fne.store.rows import Rows
from fne.store.tensors import read_sealed, write_sealed
from tests.support.finetuning import TUNING, write_tunable_project
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import COMMANDS


def run(stage):
    return CliRunner().invoke(
        import_module(f"stages.{stage}").main, COMMANDS[stage].split(), catch_exceptions=False
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project with a model that was trained on a layer of a network."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(ROOT / "params.yaml", folder)
        shutil.copytree(ROOT / "weights", folder / "weights")
        write_tunable_project(folder)
    return folder


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(trained, folder)
    monkeypatch.chdir(folder)
    return folder


def tune(project, **changes):
    change_params(project, {"finetune": TUNING | changes})
    return run("finetune")


def search(*arguments):
    return CliRunner().invoke(fne, ["search", *arguments, "--model", "tuned"])


def evaluate(vectors, prefix=""):
    written = [
        f"metrics/{prefix}{name}" for name in ("retrieval.json", "intervals.json", "curves", "ranks.h5")
    ]
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
    assert {name for name in file.weights if name.startswith(NETWORK)} == {
        f"{NETWORK}features.{name}" for name in ("0.weight", "0.bias", "3.weight", "3.bias")
    }
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


def test_weights_of_frozen_layers_keep_their_bits(project):
    tune(project)
    _, tensors = read_sealed(Path("models/tuned.safetensors"))
    from fne.extraction.weights import load_weights

    state = load_weights(Path("weights/random.yaml"), "alexnet").state
    for name in ("features.0.weight", "features.0.bias"):
        assert torch.equal(tensors[f"{NETWORK}{name}"], state[name])
    assert not torch.equal(tensors[f"{NETWORK}features.3.weight"], state["features.3.weight"])


def test_a_network_that_was_not_changed_gives_the_vectors_of_the_model(project):
    run("encode")
    rows = Rows.open(Path("vectors/images"))
    ids, before = rows.ids, rows.read(rows.ids)
    tune(project)
    # The same file with the weights that it started from.
    description, tensors = read_sealed(Path("models/tuned.safetensors"))
    _, model = read_sealed(Path("models/matching/model.safetensors"))
    from fne.extraction.weights import load_weights

    state = load_weights(Path("weights/random.yaml"), "alexnet").state
    same = {name: state[name.removeprefix(NETWORK)] for name in tensors if name.startswith(NETWORK)}
    write_sealed(Path("models/tuned.safetensors"), description, model | same)
    run("encode_tuned")
    tuned = Rows.open(Path("vectors/tuned/images"))
    assert tuned.ids == ids
    assert np.allclose(tuned.read(ids), before, atol=1e-5)


def test_a_new_photo_is_searched_with_the_tuned_network(project):
    tune(project)
    run("encode_tuned")
    known = Rows.open(Path("vectors/tuned/images"))
    # The same pixels in another file: not of the catalog, but with the same vector.
    with Picture.open("photos/03.png") as picture:
        picture.save("new.bmp")
    from fne.api import load_model

    for model in (load_model(project, model="tuned"), load_model("models/tuned.safetensors", root=project)):
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
    assert import_module("fne.api").load_model(project).path == project / "models/matching/model.safetensors"


@pytest.mark.parametrize("absent", ["models/tuned.safetensors", "vectors/tuned/images"])
def test_a_tuned_model_that_is_not_there_is_refused_with_the_command_that_makes_it(project, absent):
    if absent.startswith("vectors"):
        tune(project)
    message = f"{absent}: is missing; run `dvc repro pipelines/finetuning/dvc.yaml`, which makes the tuned model (docs/papers.md)"
    assert fault(search("a red ground")) == f"Error: {message}"
    assert fault(CliRunner().invoke(fne, ["serve", "--port", "0", "--model", "tuned"])) == f"Error: {message}"
    with pytest.raises(InputError, match="which makes the tuned model"):
        import_module("fne.api").load_model(project, model="tuned")


def test_the_same_inputs_give_the_same_bytes(project):
    tune(project)
    first = Path("models/tuned.safetensors").read_bytes()
    shutil.rmtree(".fne")
    assert run("finetune").exit_code == 0
    assert Path("models/tuned.safetensors").read_bytes() == first
    result = run("finetune")
    assert "this training has finished before" in result.output
    assert Path("models/tuned.safetensors").read_bytes() == first


def test_vectors_of_before_are_refused_with_both_digests(project):
    run("encode")
    tune(project)
    shutil.copytree("vectors", "vectors/tuned")
    model = read_model_file(Path("models/matching/model.safetensors")).artifact.digest
    tuned = read_model_file(Path("models/tuned.safetensors")).artifact.digest
    assert fault(search("a red ground")) == (
        f"Error: models/tuned.safetensors holds tuned {tuned[:12]}…, but vectors/tuned/images was made from model "
        f"{model[:12]}…; run `dvc repro pipelines/finetuning/dvc.yaml`"
    )


def test_images_and_captions_of_different_networks_are_refused_with_both_digests(project):
    run("encode")
    tune(project)
    run("encode_tuned")
    shutil.rmtree("vectors/tuned/captions")
    shutil.copytree("vectors/captions", "vectors/tuned/captions")
    model = read_model_file(Path("models/matching/model.safetensors")).artifact.digest
    tuned = read_model_file(Path("models/tuned.safetensors")).artifact.digest
    assert fault(evaluate("vectors/tuned")) == (
        f"Error: vectors/tuned/images was made from tuned {tuned[:12]}…, but vectors/tuned/captions was made from "
        f"model {model[:12]}…; run `dvc repro`"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"first": "conv7"},
            "Error: params.yaml: finetune.first: 'conv7' is not one of 'all', 'conv1', 'conv2', the layers of "
            "alexnet",
        ),
        (
            {"first": "fc6"},
            "Error: params.yaml: finetune.first is 'fc6', which comes after 'conv2', the layer that the model "
            "reads; use all or one of conv1, conv2",
        ),
    ],
)
def test_unknown_layers_are_refused(project, changes, message):
    assert fault(tune(project, **changes)) == message


def test_an_image_that_has_changed_is_refused(project):
    Picture.new("RGB", (300, 300)).save("photos/01.png")
    assert fault(tune(project)).startswith("Error: photos/01.png: has changed since the catalog was made: ")
