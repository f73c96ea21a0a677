"""Stages in several processes, started by torchrun: what one process would give, whatever is killed."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.faults.torchrun import Group, kill, require_gone
from tests.faults.training import history, prepare_matching, prepare_network
from tests.support.projects import change_params
from tests.support.stages import COMMANDS


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Everything that training needs, and a model trained by two processes that nobody disturbed."""
    folder = tmp_path_factory.mktemp("project")
    with chdir(folder):
        prepare_matching(epochs=6)
    group = Group(folder, "expected", processes=2)
    assert group.wait() == 0, group.printed()
    assert group.printed().count("best epoch") == 1
    assert not list((folder / ".fne/training").iterdir())
    return folder


def run_stage(project: Path, module: str, arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments.split()],
        cwd=project, env=os.environ | environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def same(project: Path, other: str) -> bool:
    model, expected = (project / each / "model/model.safetensors" for each in (other, "expected"))
    with chdir(project):
        return model.read_bytes() == expected.read_bytes() and history(other) == history("expected")


@pytest.mark.parametrize("victim", [0, 1])
def test_after_a_process_was_killed_all_continue_from_the_last_checkpoint(project, victim):
    group = Group(project, f"killed-{victim}", processes=2, held=True)
    group.wait_until(steps=10)
    kill(group.workers()[victim])
    group.lift()
    assert group.wait() == 0, group.printed()
    assert "resuming at epoch " in group.printed()
    assert "Traceback" not in group.printed()
    assert same(project, f"killed-{victim}")


def test_sigterm_saves_a_checkpoint_and_the_next_run_continues(project):
    group = Group(project, "terminated", processes=2, held=True)
    group.wait_until(steps=10)
    group.process.terminate()
    assert group.wait() == 128 + signal.SIGTERM
    group.lift()
    said = "terminated; finished work is kept, and the same command continues from there\n"
    assert group.printed().count(said) == 1
    assert "Traceback" not in group.printed()
    group = Group(project, "terminated", processes=2)
    assert group.wait() == 0
    assert "resuming at epoch " in group.printed()
    assert same(project, "terminated")


def test_processes_end_with_the_one_that_started_torchrun(project):
    group = Group(project, "orphaned", processes=2, held=True)
    group.wait_until(steps=10)
    workers = group.workers()
    group.process.kill()
    group.wait()
    assert len(workers) == 2
    require_gone(workers)
    group.lift()
    assert Group(project, "orphaned", processes=2).wait() == 0
    assert same(project, "orphaned")


def test_encoding_and_evaluation_give_the_bytes_of_one_process(project):
    results = {}
    for count in ("1", "2"):
        (project / count).mkdir()
        for name in ("encode", "evaluate"):
            arguments = COMMANDS[name].replace("models/matching", "expected/model")
            moved = arguments.replace("vectors", count).replace("metrics/", f"{count}/")
            done = run_stage(project, f"stages.{name}", moved, PET_NPROC_PER_NODE=count)
            assert done.returncode == 0, done.stderr
            assert len(done.stdout.splitlines()) == 1
        results[count] = {
            str(path.relative_to(project / count)): path.read_bytes()
            for path in sorted((project / count).rglob("*"))
            if path.is_file()
        }
    # The ranks name the folders of the vectors, by their digests only.
    assert results["1"].keys() == results["2"].keys()
    assert len(results["1"]) >= 7
    assert results["1"] == results["2"]


@pytest.mark.parametrize("kind", ["", "tagger", "captioner"])
def test_two_processes_fine_tune_as_one_does(tmp_path, kind):
    with chdir(tmp_path):
        prepare_network(2, kind)
    stage, tuned = (f"tune_{kind}", f"tuned_{kind}") if kind else ("finetune", "tuned")
    models = {}
    for count in ("1", "2"):
        arguments = COMMANDS[stage]
        for name in (f"models/{tuned}.safetensors", "models/tuned_", "models/tuning", "metrics/tuning.json"):
            arguments = arguments.replace(f" {name}", f" {count}/{name}")
        done = run_stage(tmp_path, f"stages.{stage}", arguments, PET_NPROC_PER_NODE=count)
        assert done.returncode == 0, done.stderr
        models[count] = load_file(tmp_path / f"{count}/models/{tuned}.safetensors")
    for name, value in models["1"].items():
        torch.testing.assert_close(models["2"][name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_a_user_error_is_printed_once_and_nothing_is_restarted(project):
    arguments = COMMANDS["train"].replace("features/embeddings", "features/none")
    done = run_stage(project, "stages.train", arguments, PET_NPROC_PER_NODE="2")
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "Error: features/none: no row store (manifest.json is missing); run `dvc repro`, or `dvc pull` to fetch it\n",
    )


def test_a_user_error_of_the_first_process_alone_is_printed_once_too(project):
    # Only the first one keeps checkpoints; the other waits for it meanwhile.
    shutil.copy(project / "params.yaml", project / "blocked.yaml")
    change_params(project, {"runtime": {"scratch": "params.yaml"}}, "blocked.yaml")
    arguments = f"{COMMANDS['train']} --params blocked.yaml"
    done = run_stage(project, "stages.train", arguments, PET_NPROC_PER_NODE="2")
    assert done.returncode == 2
    assert done.stdout.count("chosen of ") == 1  # the closed form that training starts from
    assert done.stderr.startswith("Error: params.yaml/train")
    assert done.stderr.count("\n") == 1


def test_an_invalid_number_of_processes_is_refused(project):
    done = run_stage(project, "stages.train", COMMANDS["train"], PET_NPROC_PER_NODE="two")
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "Error: torchrun's variables (PET_…) are wrong: Unsupported nproc_per_node value: two\n",
    )
