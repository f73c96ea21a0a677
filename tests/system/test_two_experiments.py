"""Two experiments at once in one clone: the second rewrites `params.yaml` while the first trains."""

import json
import subprocess
import sys
import time
from pathlib import Path

from fne.cli.artifacts import KINDS, SOURCES
from fne.core.dvc import cache_object
from fne.core.settings import parse_yaml
from fne.matching.model_file import read_model_file
from fne.store.history import read_history_seal
from fne.store.verify import verify_artifacts
from tests.support.projects import commit, dvc, environment, git, quick_project

MODEL = "models/matching/model.safetensors"


def experiment(project: Path, printed: Path, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dvc", "exp", "run", *(f"-S{each}" for each in overrides)]
    with printed.open("w") as file:
        streams = {"stdout": file, "stderr": file, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(command, cwd=project, env=environment(), text=True, **streams)


def recorded(project: Path, lock: str) -> tuple[float, float]:
    """Return the margin that a lock file records, and the one that its model was made with."""
    stage = parse_yaml(lock.encode(), "dvc.lock")["stages"]["train"]
    (md5,) = (each["md5"] for each in stage["outs"] if each["path"] == MODEL)
    made = read_model_file(cache_object(project / ".dvc/cache/files/md5", md5)).artifact.settings
    return stage["params"]["params.yaml"]["train"]["margin"], made["margin"][0]


def test_no_experiment_records_settings_that_it_did_not_use(tmp_path, monkeypatch):
    project = quick_project(tmp_path / "project")
    dvc(project, "repro")
    commit(project)
    first = experiment(
        project, tmp_path / "first", "train.margin=0.1", "train.epochs=300", "train.patience=300"
    )
    deadline = time.monotonic() + 120
    while not list((project / ".fne/training").glob("*")) and first.poll() is None:
        assert time.monotonic() < deadline, (tmp_path / "first").read_text()
        time.sleep(0.1)
    assert first.poll() is None, (tmp_path / "first").read_text()
    second = experiment(project, tmp_path / "second", "train.margin=0.3")
    codes = [each.wait(timeout=600) for each in (first, second)]
    printed = (tmp_path / "first").read_text() + (tmp_path / "second").read_text()
    assert "Traceback" not in printed
    references = git(project, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    experiments = [each for each in references if each.count("/") > 3 and "/exec/" not in each]
    # DVC may let neither through; then the first one has noticed that its settings were changed.
    refused = "train.margin changed from 0.1 to 0.3, while the stage ran; nothing was published" in printed
    assert experiments or refused, printed
    assert len(experiments) >= codes.count(0), printed
    for each in experiments:
        lock, made = recorded(project, git(project, "show", f"{each}:dvc.lock"))
        assert lock == made, f"{each}: {printed}"
    monkeypatch.chdir(project)
    dvc(project, "repro")
    assert verify_artifacts([], KINDS, SOURCES).faults == []
    assert read_history_seal(Path("models/history")).model == read_model_file(Path(MODEL)).artifact.digest
    assert json.loads(Path("metrics/retrieval.json").read_text())
