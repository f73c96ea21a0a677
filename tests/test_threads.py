"""The bytes of a trained model do not depend on the cores of the machine, nor on the environment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import captions, finetuning, tagging
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import COMMANDS, run

__all__ = ["run"]

MODELS = {
    "train": "models/matching/model.safetensors",
    "finetune": "models/tuned.safetensors",
    "tune_captioner": "models/tuned_captioner.safetensors",
    "train_tagger": "models/tagger.safetensors",
    "train_captioner": "models/captioner.safetensors",
}
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
# Runs a stage, and prints with how many threads torch makes its steps.
PROGRAM = """
import os, sys
from importlib import import_module
if sys.argv[2] == "one core":
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
import torch
from fne.training.loop import Trainer
step, seen = Trainer.step, set()
def counted(*arguments):
    seen.add(torch.get_num_threads())
    return step(*arguments)
Trainer.step = counted
import_module(f"stages.{sys.argv[1]}").main.main(sys.argv[3:], standalone_mode=False)
print(seen, file=sys.stderr)
"""


def train(stage: str, threads: int, cores: str = "all") -> tuple[str, bytes]:
    """Run a stage without finished training runs; return the threads of its steps and the bytes of its model."""
    shutil.rmtree(".fne", ignore_errors=True)
    own = dict.fromkeys(VARIABLES, str(threads)) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, stage, cores, *COMMANDS[stage].split()]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1], Path(MODELS[stage]).read_bytes()


def prepare(stage: str, request: pytest.FixtureRequest, folder: Path) -> None:
    """Write a small project, in which a stage can train, and enter it."""
    if stage == "train":
        before = request.getfixturevalue("run")("standardize", "embed", "tokenize")
        assert before.exit_code == 0, before.output
    else:
        request.getfixturevalue("monkeypatch").chdir(folder)
        shutil.copy(ROOT / "params.yaml", folder)
        shutil.copytree(ROOT / "weights", folder / "weights")
    if stage == "finetune":
        finetuning.write_tunable_project(folder, epochs=1)
    if stage == "tune_captioner":
        finetuning.write_describing_project(folder, "captioner")
    if stage == "train_tagger":
        tagging.write_project(folder, tagging.scenes(60))
    if stage == "train_captioner":
        captions.write_world(folder)
        change_params(folder, {stage: captions.SMALL, "runtime": {"device": "cpu"}})
    change_params(folder, {stage: {"threads": 2}})


@pytest.mark.parametrize("stage", MODELS)
def test_a_model_has_the_same_bytes_on_every_machine(stage, request, tmp_path):
    prepare(stage, request, tmp_path)
    seen, model = train(stage, threads=1)
    assert seen == "{2}"
    assert train(stage, threads=4, cores="one core") == ("{2}", model)


def test_another_number_of_threads_is_recorded_and_never_taken_from_finished_training_runs(run):
    change_params(Path(), {"train": {"threads": 1}})
    assert run("standardize", "embed", "tokenize", "train").exit_code == 0
    assert json.loads(Path("metrics/training.json").read_text())["threads"] == 1
    assert "this training has finished before" in run("train").stdout
    change_params(Path(), {"train": {"threads": 2}})
    assert "this training has finished before" not in run("train").stdout
    assert json.loads(Path("metrics/training.json").read_text())["threads"] == 2
