import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image as Picture

from fne.cli import main as fne
from fne.matching.model_file import NETWORK, is_tuned, read_model_file
from fne.report.sources import RSUM, read_tables
from fne.store.checksums import parse_metrics
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


def fault(result):
    assert result.exit_code == 2, result.output
    return result.output.splitlines()[-1]


def test_switched_off_it_says_so_and_vectors_are_those_of_the_model(project):
    assert run("finetune").exit_code == 0
    assert not is_tuned(Path("models/tuned.safetensors"))
    assert Path("models/tuned.safetensors").stat().st_size < 1000
    assert read_history_seal(Path("models/tuning")).points == 0
    assert parse_metrics(Path("metrics/tuning.json").read_bytes()) == {"tuned": False}
    described = CliRunner().invoke(fne, ["inspect", "metrics/tuning.json"])
    assert described.output == "metrics/tuning.json: the image network was not tuned\n"
    assert run("encode").exit_code == 0
    lineage = Rows.open(Path("vectors/images")).artifact.lineage
    assert "tuned" not in lineage
    assert run("evaluate").exit_code == 0


def test_switched_off_it_imports_no_torch(project):
    code = (
        "import sys; from stages.finetune import main; "
        f"main({COMMANDS['finetune'].split()!r}, standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_tuned_network_makes_other_vectors_and_everything_follows(project):
    result = tune(project)
    assert result.exit_code == 0, result.output
    assert "fine-tuning from layer 'conv2': 6 images per epoch, 2 epochs, about " in result.output
    assert "cheaper: set finetune.epochs to 0" in result.output
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
    assert run("encode").exit_code == 0
    lineage = Rows.open(Path("vectors/images")).artifact.lineage
    assert lineage["tuned"]["digest"] == file.artifact.digest
    assert run("evaluate").exit_code == 0
    assert json.loads(Path("metrics/retrieval.json").read_text())["test_full"]["images"] == 4
    searched = CliRunner().invoke(fne, ["search", "a red ground"])
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
    run("finetune")
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
    run("encode")
    assert np.allclose(Rows.open(Path("vectors/images")).read(ids), before, atol=1e-5)


def test_a_new_photo_is_searched_with_the_tuned_network(project):
    tune(project)
    run("encode")
    known = Rows.open(Path("vectors/images"))
    # The same pixels in another file: not of the catalog, but with the same vector.
    with Picture.open("photos/03.png") as picture:
        picture.save("new.bmp")
    from fne.api import load_model

    found = load_model(project).encode_images(["new.bmp"])
    assert np.allclose(found[0], known.read(["03.png"])[0], atol=1e-5)
    result = CliRunner().invoke(fne, ["search", "new.bmp"])
    assert result.exit_code == 0, result.output


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
    run("finetune")
    run("encode")
    tune(project)
    model = read_model_file(Path("models/matching/model.safetensors")).artifact.digest
    tuned = read_model_file(Path("models/tuned.safetensors")).artifact.digest
    result = CliRunner().invoke(fne, ["search", "a red ground"])
    assert fault(result) == (
        f"Error: models/tuned.safetensors holds tuned {tuned[:12]}…, but vectors/images was made from model "
        f"{model[:12]}…; run `dvc repro`"
    )


def test_images_and_captions_of_different_networks_are_refused_with_both_digests(project):
    run("finetune")
    run("encode")
    shutil.copytree("vectors/captions", "untuned")
    tune(project)
    run("encode")
    shutil.rmtree("vectors/captions")
    shutil.copytree("untuned", "vectors/captions")
    model = read_model_file(Path("models/matching/model.safetensors")).artifact.digest
    tuned = read_model_file(Path("models/tuned.safetensors")).artifact.digest
    assert fault(run("evaluate")) == (
        f"Error: vectors/images was made from tuned {tuned[:12]}…, but vectors/captions was made from model "
        f"{model[:12]}…; run `dvc repro`"
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
