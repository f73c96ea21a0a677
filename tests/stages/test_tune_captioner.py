"""The stages that tune the network of a captioner or a tagger, and those that write with it."""

import json
import shutil
from contextlib import chdir
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image as Picture

from fne.cli import main as fne
from fne.describing.annotations import read_tagged, read_written
from fne.describing.model_file import read_describing_model
from fne.extraction.weights import load_weights
from fne.store.history import read_history_seal
from fne.store.tensors import NETWORK, read_sealed
from tests.support.finetuning import DESCRIBING, TUNED, write_describing_project
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal


def write(kind, folder):
    shutil.copy(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "weights", folder / "weights")
    with chdir(folder):
        write_describing_project(folder, kind)
    change_params(folder, {f"write_{DESCRIBING[kind]}": {"images": "all"}, f"tune_{kind}": TUNED})


WRITE = {kind: partial(write, kind) for kind in DESCRIBING}


@pytest.fixture(params=DESCRIBING)
def kind(request, enter):
    """Enter a project with a tuned model, and what both models wrote."""
    words = DESCRIBING[request.param]
    enter(WRITE[request.param], f"write_{words}", f"tune_{request.param}", f"write_tuned_{words}")
    return request.param


def written(kind, name):
    """What was written about each image: its caption, or the probabilities of its concepts."""
    path = Path(f"annotations/{name}{DESCRIBING[kind]}.jsonl")
    if kind == "captioner":
        return {key: each.concepts for key, each in read_written(path)[0].items()}, read_written(path)[1]
    found = read_tagged(path)
    return {each.id: each.probabilities for each in found.images}, found.artifact


def test_a_tuned_network_sees_other_concepts_and_its_files_say_what_they_are_made_from(kind):
    model, file = read_describing_model(Path(f"models/tuned_{kind}.safetensors"), kind)
    _, before = read_describing_model(Path(f"models/{kind}.safetensors"), kind)
    lineage, settings = file.artifact.lineage, file.artifact.settings
    assert lineage[f"{kind}_before"]["digest"] == before.artifact.digest
    assert (settings["first"], settings["units"], settings["learns"]) == (
        "conv2",
        16,
        ["concept_head", "jointly"],
    )
    assert file.vocabulary == before.vocabulary
    _, tensors = read_sealed(file.artifact.path)
    state = load_weights(Path("weights/random.yaml"), "alexnet").state
    changed = {
        name for name in state if not torch.equal(state[name], tensors.get(f"{NETWORK}{name}", state[name]))
    }
    assert changed == {"features.3.weight", "features.3.bias"}
    assert not any(name.startswith(NETWORK) for name in model.state_dict())
    seal = read_history_seal(Path(f"models/tuned_{kind}_history"))
    assert seal.points == 4  # before the first step, and after each epoch
    (fixed, _), (tuned, artifact) = written(kind, ""), written(kind, "tuned_")
    assert fixed.keys() == tuned.keys()
    assert fixed != tuned
    assert artifact.lineage[kind]["digest"] == file.artifact.digest == seal.artifact.lineage[kind]["digest"]
    for path in (f"models/tuned_{kind}.safetensors", f"annotations/tuned_{DESCRIBING[kind]}.jsonl"):
        for command in ("verify", "inspect"):
            result = CliRunner().invoke(fne, [command, path])
            assert result.exit_code == 0, result.output


def test_a_new_photo_is_described_with_the_tuned_network(kind):
    with Picture.open("photos/13.png") as picture:
        picture.save("new.bmp")
    expected, _ = written(kind, "tuned_")
    for name in ("13.png", "new.bmp"):
        result = CliRunner().invoke(fne, ["describe", name, "--model", "tuned", "--json", "--k", "20"])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)["concepts"]
        wanted = expected["13.png"]
        wanted = sorted(wanted.values() if isinstance(wanted, dict) else wanted, reverse=True)
        assert np.allclose(list(found.values())[: len(wanted)], wanted, atol=1e-3)


def test_the_same_inputs_give_the_same_bytes(kind):
    path = Path(f"models/tuned_{kind}.safetensors")
    first = path.read_bytes()
    shutil.rmtree(".fne")
    assert invoke(f"tune_{kind}").exit_code == 0
    assert path.read_bytes() == first
    again = invoke(f"tune_{kind}")
    assert "this training has finished before" in again.output
    assert "fine-tuning from layer" not in again.output
    assert path.read_bytes() == first


def test_what_both_models_made_is_not_mixed(kind):
    shutil.copy(f"models/{kind}.safetensors", f"models/tuned_{kind}.safetensors")
    message = (
        f"models/tuned_{kind}.safetensors: holds no network that was tuned with the model; run `dvc repro"
    )
    assert refusal(f"write_tuned_{DESCRIBING[kind]}").startswith(message)
