"""The commands in the documents' blocks, run one after the other in a small project.

Commands that are given twice run once. Experiments of the README run; those of other documents, which would
take minutes, are checked with `fne check`. `EXCEPTIONS` names what cannot run here.
"""

import re
import shlex
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from fne.datasets.demo.dataset import Render, describe_dataset
from tests.support.commands import fne
from tests.support.imports import ROOT
from tests.support.projects import commit, dvc, environment, git, quick_project
from tests.support.search import draw

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What a command contains, and why it cannot run here.
EXCEPTIONS = {
    "/data/": "real data",
    "a dog": "captions of photographs",
    "--model tuned": "a fine-tuned network; tests/stages/test_finetune.py",
    "VGG_ILSVRC": "real weights",
    "timm/": "real weights; tests/extraction/test_timm_networks.py",
    "conv5_3": "layers of VGG16",
    "glove.txt": "real word vectors",
    "--dataset flickr": "real data, if it is run",
    "bfloat16": "a GPU",
    "--device cuda": "a GPU; tests/cli/test_device_test.py",
    "ray": "a cluster; tests/system/test_ray.py",
    "stages.train": "several nodes; tests/system/test_torchrun.py",
    "repro train": "several nodes; tests/system/test_torchrun.py",
    "ssh://": "a server; tests/system/test_remotes.py",
    "s3://": "a server; tests/system/test_remotes.py",
    "git@host": "a server; tests/system/test_team.py",
    "features/borrowed": "a store from that server",
    "/srv/fne": "a group of users; tests/system/test_team.py",
    "exp push": "a Git server; tests/system/test_team.py",
    "exp pull": "a Git server; tests/system/test_team.py",
    "NAME": "a name of your own",
    "--run ": "hours",
    "--run-cache": "needs `dvc push --run-cache`; tests/sharing/test_remote.py",
    "--all-commits": "results of earlier commits, which this copy never had; tests/sharing/test_remote.py",
    "fne compare": "two experiments; tests/cli/test_compare.py",
    "ing/dvc.yaml": "another pipeline (tagging, captioning), which takes minutes; tests/tasks",
    "fne study": "features of photographs; tests/cli/test_study.py",
    "fne serve": "answers until it is stopped; tests/system/test_serve_page.py",
    "fne describe": "a tagger or captioner; tests/search/test_describe.py",
    "metrics/tags.json": "a tagger",
    "metrics/captions.json": "a captioner",
    "--dry": "times one epoch; tests/cli/test_timing.py",
    "queue start": "runs what is queued in the background",
    "dvc gc": "asks before it removes",
    "make ": "the environment",
    "pip install": "the environment",
    "source ": "the environment",
    "rm -rf": "a damaged object",
    "imagenet.yaml": "a download",
    "captions.npz": "vectors of another program; tests/cli/test_import.py",
    "imported_captions": "vectors of another program; tests/cli/test_import.py",
    "clip_images.npz": "vectors of another program; tests/cli/test_import.py",
    "text_network": "a text network; tests/stages/test_extract_text.py",
    "own/both-sides": "a text network",
    "pipelines/imported": "vectors of another program; tests/cli/test_import.py",
    "pipelines/layers": "a pipeline that is off; tests/stages/test_probe_layers.py",
    "metrics/layers.json": "a pipeline that is off; tests/stages/test_probe_layers.py",
    "pipelines/judgments": "pairs of Flickr8k; tests/stages/test_score_judgments.py",
    "metrics/judgments.json": "the same",
    "fne upgrade": "a project of `fne init`; tests/test_wheel.py",
    "http://": "a server; tests/system/test_published.py",
    "--remote public": "a server; tests/system/test_published.py",
    "import flickr8k": "a published folder; tests/sharing/test_published.py",
}
PROGRAMS = ("fne", "dvc", "git")


def blocks(text: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Return the name of the document and each command that runs here, in order."""
    found: dict[str, str] = {}
    for path in DOCUMENTS:
        for block in blocks(path.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.split(r"\s+# ", line)[0].strip()
                if command.startswith(PROGRAMS) and not any(each in f"{command} " for each in EXCEPTIONS):
                    found.setdefault(command, path.name)
    return [(document, command) for command, document in found.items()]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project of forty drawn images in which `dvc repro` has finished, with what the documents assume."""
    home = tmp_path_factory.mktemp("home")
    folder = quick_project(home / "project")
    dvc(folder, "repro")
    commit(folder)
    git(folder, "tag", "v1.0")
    draw(folder / "photo.jpg", "red", "circle")
    draw(home / "photos/photo.jpg", "red", "circle")
    settings = Render(seed=0, images=40, side=96, val_share=0.2, test_share=0.3)
    ids = [image["filename"] for image in describe_dataset(settings)["images"]]
    for name, own in (("others.h5", ids), ("test.h5", ["new-1.jpg", "new-2.jpg"])):
        with h5py.File(folder / name, "w") as file:
            file["ids"] = own
            file["features"] = np.random.default_rng(0).normal(size=(len(own), 6)).astype(np.float32)
    return folder


@pytest.mark.parametrize(("document", "command"), commands(), ids=lambda text: text)
def test_a_command_of_the_documents_runs(project, monkeypatch, document, command):
    monkeypatch.setenv("HOME", str(project.parent))
    monkeypatch.chdir(project)
    if document != "README.md" and command.startswith("dvc exp run"):
        command = re.sub(" --(queue|temp)", "", f"fne check{command.removeprefix('dvc exp run')}")
    if command.startswith("git checkout"):
        return  # the reset below is this command
    command = re.sub(r"\$\((fne [^)]*)\)", lambda found: printed(found[1]), command)
    home = str(project.parent)
    command = command.replace("/mnt/team/fne", f"{home}/remote").replace("~", home)
    try:
        printed(command)
        if command.startswith("dvc add"):
            printed("dvc push")
    finally:
        if command.startswith("dvc exp run"):
            git(project, "checkout", "--", "params.yaml", "dvc.lock", "metrics")
            dvc(project, "checkout", "--allow-missing")


def printed(command: str) -> str:
    """Run a command and return what it printed; `fne` in this process, which takes less time."""
    program, *words = shlex.split(command)
    if program == "fne":
        result = fne(*words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()
    done = subprocess.run([program, *words], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_exception_is_needed():
    text = "\n".join(block for path in DOCUMENTS for block in blocks(path.read_text(encoding="utf-8")))
    assert [each for each in EXCEPTIONS if each.strip() not in text] == []
