"""`fne init` in folders of every kind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fne.core.settings import load_params, read_yaml
from tests.support.commands import fne, refused
from tests.support.projects import git


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("DVC_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def table(folder: Path) -> None:
    folder.mkdir()
    rows = [f"{number}.jpg,A dog." for number in range(10)]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *rows]))
    for row in rows:
        (folder / row.split(",")[0]).touch()


def test_a_project_is_written_described_and_valid(folder):
    table(folder / "photos")
    result = fne("init", "project", "--data", "photos", "--with", "tagging,imported")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "photos: format table, 10 images, 10 captions"
    assert "  missing   tags: set train_tagger.concepts to words, in pipelines/tagging/params.yaml" in lines
    assert lines[lines.index("next:") :] == [
        "next:",
        "  cd project",
        '  git add --all && git commit --message "Start the project"',
        "  dvc exp run -S extract.weights=weights/imagenet.yaml    # torchvision's VGG16, downloaded once",
        "  dvc repro    # instead: untrained weights, only to try the pipeline",
        "  dvc repro pipelines/tagging/dvc.yaml",
        "  dvc repro pipelines/imported/dvc.yaml",
    ]
    assert load_params(Path("project/params.yaml"))["catalog"]["root"] == str(folder / "photos")
    assert Path("project/.dvc/plots/page.html").is_file()
    os.chdir("project")
    assert fne("check").exit_code == 0
    assert git(Path(), "rev-parse", "--show-toplevel").strip() == str(folder / "project")


def test_pipelines_are_added_to_a_project_and_upgraded_with_it():
    assert fne("init").exit_code == 0
    before = {path: path.read_bytes() for path in Path().glob("*.yaml") if path.name != "code.yaml"}
    result = fne("init", "--with", "captioning")
    assert result.output.splitlines()[0] == (
        ".: 3 files written: pipelines/captioning/dvc.yaml, pipelines/captioning/params.yaml, code.yaml"
    )
    assert {path: path.read_bytes() for path in before} == before
    assert [*read_yaml(Path("code.yaml"))["written"]] == [
        "dvc.yaml",
        "pipelines/captioning/dvc.yaml",
        "pipelines/demo/dvc.yaml",
    ]
    assert refused("init").startswith("Error: .: is a project already; add pipelines with --with")


def test_a_folder_in_a_repository_gets_no_repository_of_its_own(folder):
    git(folder, "init", "--quiet")
    (folder / "notes.txt").write_text("mine")
    result = fne("init", "below")
    assert "started   DVC" in result.output
    assert "started   Git" not in result.output
    assert not Path("below/.git").exists()


def test_nothing_of_the_user_is_replaced(folder):
    Path("README.md").write_text("mine\n")
    Path("params.yaml").write_text("mine: 1\n")
    Path("pipelines/demo/dvc.yaml").mkdir(parents=True)
    assert refused("init") == (
        "Error: .: has params.yaml, pipelines/demo/dvc.yaml already, and no file is replaced; name an empty folder\n"
    )
    assert sorted(each.name for each in folder.iterdir()) == ["README.md", "params.yaml", "pipelines"]
    Path("params.yaml").unlink()
    Path("pipelines/demo/dvc.yaml").rmdir()
    assert "  kept      README.md, which was there" in fne("init").output
    assert Path("README.md").read_text() == "mine\n"


def test_a_command_that_was_killed_can_be_run_again(monkeypatch):
    assert fne("init").exit_code == 0
    Path("code.yaml").unlink()
    Path("dvc.yaml").unlink()
    result = fne("init")
    assert result.exit_code == 0, result.output
    assert Path("dvc.yaml").is_file()


def programs(folder: Path, **scripts: str) -> str:
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("scripts", "told"),
    [
        ({}, "git: no such command; install Git"),
        ({"git": ""}, "dvc: no such command; activate the environment of fne"),
        ({"git": "", "dvc": "", "python": ""}, "dvc: version '' is too old; run `pip install 'dvc>=3.60'`"),
        (
            {"git": "", "dvc": "echo 2.58.1", "python": ""},
            "dvc: version '2.58.1' is too old; run `pip install 'dvc>=3.60'`",
        ),
        ({"git": "", "dvc": "echo broken >&2; exit 1", "python": ""}, "`dvc --version` failed: broken"),
    ],
)
def test_an_environment_that_cannot_run_the_stages_is_refused(folder, monkeypatch, scripts, told):
    monkeypatch.setenv("PATH", programs(folder / "bin", **scripts))
    assert told in refused("init", "project")
    assert not Path("project").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--with", "tags"),
            "--with: 'tags' is not one of 'captioning', 'finetuning', 'imported', ",
        ),
        (("--data", "nowhere"), "'nowhere': no such file or folder"),
        (("--data", "."), "no data set found"),
        (("file",), "file: cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, words, told):
    Path("file").touch()
    message = refused("init", *words)
    assert told in message
    assert message.count("\n") == 1
    assert [each.name for each in folder.iterdir()] == ["file"]


def run_check() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fne.stages.check", "checked/parameters.txt", "metrics/settings.json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_stage_runs_with_the_code_of_its_project_and_no_other():
    assert fne("init").exit_code == 0
    done = run_check()
    assert done.returncode == 0, done.stderr
    Path("code.yaml").write_text(
        re.sub("check: '.*'", "check: '0123456789abcdef'", Path("code.yaml").read_text())
    )
    done = run_check()
    assert done.returncode == 2
    assert re.fullmatch(
        r"Error: code\.yaml: stage 'check' has code 0123456789abcdef, but the installed fne \S+ has [0-9a-f]{16}; "
        r"run `fne upgrade`, then `dvc repro`\n",
        done.stderr,
    )
    assert "  run again   check; " in fne("upgrade").output
    assert run_check().returncode == 0
