"""Copies of this project in which tests run the whole pipeline, small."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from fne.core.settings import put
from fne.experiments.effective_settings import pipeline_of_section, pipeline_params
from tests.support.imports import ROOT

# A small world, a fast network, a short training: a minute for all stages.
SMALL = {
    "render": {"images": 80, "side": 96, "val_share": 0.2, "test_share": 0.3},
    "extract": {"backbone": "alexnet", "crops": "center", "shards": 2},
    "train": {
        "start": "random",
        "rates": "equal",
        "image_head": "linear",
        "text_encoder": "gru",
        "clip": 2.0,
        "embed_dim": 64,
        "word_dim": 32,
        "batch": 16,
        "learning_rate": 0.001,
        "epochs": 30,
        "patience": 15,
        "threads": 1,
    },
    "baseline": {"threads": 1},
    "finetune": {"threads": 1},
    "train_tagger": {"threads": 1, "units": 16, "word_dim": 8, "epochs": 3},
    "tags_page": {"examples": 3},
    "train_captioner": {"threads": 1, "units": 24, "word_dim": 16, "epochs": 3, "min_count": 1},
    "score_captions": {"meteor": "never"},
    "captions_page": {"examples": 3},
    "report": {"examples": 3},
    "runtime": {"device": "cpu", "threads": 1, "workers": 0},
}


def new_repository(folder: Path) -> None:
    """Start a Git repository whose commits have an author."""
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@example.org")


def copy_project(folder: Path) -> Path:
    """Copy what Git has or would add, so that tests see the files as they are now, and commit it."""
    listed = _run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    new_repository(folder)
    commit(folder)
    return folder


def small_project(folder: Path) -> Path:
    """Copy the project with small parameters, and without the demo's results of the optional pipelines."""
    copy_project(folder)
    for pipeline in ("tagging", "captioning", "judgments"):
        (folder / "pipelines" / pipeline / "dvc.lock").unlink(missing_ok=True)
    for metrics in ("tags", "captions", "judgments"):
        (folder / "metrics" / f"{metrics}.json").unlink(missing_ok=True)
    change_params(folder, SMALL)
    commit(folder)
    return folder


def quick_project(folder: Path) -> Path:
    """Copy the project with few images and a training of a moment, where it does not matter what was learned."""
    small_project(folder)
    change_params(folder, {"render": {"images": 40}, "train": {"epochs": 2}})
    commit(folder)
    return folder


def change_params(folder: Path, changes: dict[str, dict[str, object]], name: str = "params.yaml") -> None:
    """Change keys of the parameter file that has them, or of another one; nested ones as `-S` names them."""
    yaml = YAML()
    for section, keys in changes.items():
        file = folder / name if name != "params.yaml" else _file_of(folder, section)
        params = yaml.load(file)
        params[section] = params.get(section) or {}
        for key, value in keys.items():
            put(params[section], key, value)
        yaml.dump(params, file)


def _file_of(folder: Path, section: str) -> Path:
    """Return the parameter file of a section's pipeline, or the one in the root where that is not there."""
    file = folder / pipeline_params(pipeline_of_section(section))
    return file if file.exists() else folder / "params.yaml"


def commit(folder: Path) -> None:
    """Commit everything."""
    _run(folder, "git", "add", "--all")
    _run(folder, "git", "commit", "--quiet", "--allow-empty", "--message", "State")


def dvc(folder: Path, *arguments: str) -> str:
    """Run DVC and return what it printed."""
    return _run(folder, sys.executable, "-m", "dvc", *arguments)


def fails(folder: Path, *arguments: str) -> str:
    """Run a command of DVC that must fail, and return what it printed."""
    return _run(folder, sys.executable, "-m", "dvc", *arguments, fails=True)


def git(folder: Path, *arguments: str) -> str:
    """Run Git and return what it printed."""
    return _run(folder, "git", *arguments)


def stages_run(output: str) -> list[str]:
    """Return the stages that DVC says it ran, as the pipeline files list them: DVC orders independent ones."""
    files = [ROOT / "dvc.yaml", *sorted(ROOT.glob("pipelines/*/dvc.yaml"))]
    order = [name for file in files for name in YAML(typ="safe").load(file)["stages"]]
    order.insert(1, "render")  # after `check`
    found = re.findall(r"^Running stage '(?:[\w/.]+:)?(\w+)'", output, flags=re.MULTILINE)
    return sorted(found, key=order.index)


def environment() -> dict[str, str]:
    """Return an environment without the settings of a DVC or Git around the tests, with our programs and one thread."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "GIT_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    return found | {"PATH": path, "OMP_NUM_THREADS": "1"}


def _run(folder: Path, *command: str, fails: bool = False) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert bool(done.returncode) == fails, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
