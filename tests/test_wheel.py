"""The wheel in an environment without this repository: a project from `fne init` to its metrics, and an upgrade."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fne.core.code import code_digest, code_of_stages
from tests.support.imports import ROOT
from tests.support.projects import SMALL, change_params, commit, copy_project, environment, git, stages_run

BUILD = "from setuptools import build_meta as build; import sys; build.build_{}(sys.argv[1])"


Variables = dict[str, str]


def run(folder: Path, *command: str, fails: bool = False, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment() | variables, capture_output=True, text=True, check=False
    )
    assert bool(done.returncode) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Variables:
    """An environment with the wheel and, for all other packages, those of the tests; as its variables.

    The wheel is built from the source archive, as `pip install` does where there is no wheel.
    """
    place = tmp_path_factory.mktemp("wheel")
    copy = copy_project(place / "copy")
    run(copy, sys.executable, "-c", BUILD.format("sdist"), str(place))
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(place / "source", filter="data")
    (source,) = (place / "source").iterdir()
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(place, *pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(source))
    (wheel,) = place.glob("*.whl")
    run(place, sys.executable, "-m", "venv", "--without-pip", "environment")
    python = place / "environment/bin/python"
    run(place, *pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    (site,) = (place / "environment").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(
        "\n".join(each for each in sys.path if each.endswith("site-packages")) + "\n"
    )
    dvc = python.with_name("dvc")
    dvc.write_text(f"#!{python}\nfrom dvc.cli import main\nraise SystemExit(main())\n")
    dvc.chmod(0o755)
    return {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def project(installed, tmp_path_factory) -> Path:
    """A small project on which everything has been run once."""
    folder = tmp_path_factory.mktemp("project")
    run(folder, "fne", "init", **installed)
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@example.org")
    change_params(
        folder,
        {
            name: keys
            for name, keys in SMALL.items()
            if name in ("render", "extract", "baseline", "report", "runtime")
        },
    )
    change_params(folder, {"train": SMALL["train"] | {"epochs": 5}})
    commit(folder)
    run(folder, "dvc", "repro", **installed)
    commit(folder)
    return folder


def python(installed, folder: Path, code: str) -> str:
    return run(folder, "python", "-c", code, **installed).strip()


def test_the_environment_has_the_library_of_the_wheel_and_no_package_stages(installed, tmp_path):
    place = python(installed, tmp_path, "import fne; print(fne.__file__)")
    assert "environment" in place
    found = python(
        installed, tmp_path, "import importlib.util as u; print(u.find_spec('stages'), u.find_spec('tests'))"
    )
    assert found == "None None"


def test_the_code_of_the_wheel_has_the_digests_of_this_repository(installed, tmp_path):
    code = "import json; from fne.core.code import *; print(json.dumps({s: code_digest(s) for s in code_of_stages()}))"
    assert json.loads(python(installed, tmp_path, code)) == {
        stage: code_digest(stage) for stage in code_of_stages()
    }


def test_presets_and_tables_come_with_the_library(installed, project):
    assert "++embed.kind=fne" in run(project, "fne", "preset", "FNE-POE", **installed)
    assert "FNE-MH" in run(project, "fne", "table", "2", **installed)
    assert not (project / "papers").exists()


def test_a_project_is_run_to_its_metrics_and_then_is_up_to_date(installed, project):
    assert json.loads((project / "metrics/retrieval.json").read_text())["test_full"]["images"] == 24
    assert "Data and pipelines are up to date." in run(project, "dvc", "repro", **installed)
    assert "no faults" in run(project, "fne", "verify", **installed)
    assert git(project, "status", "--short") == ""


def test_other_code_runs_after_an_upgrade_and_only_the_stages_that_have_it(installed, project):
    """As `pip install --upgrade` does: the installed code of one package changes."""
    edited = Path(python(installed, project, "import fne.text.tokenizer as t; print(t.__file__)"))
    edited.write_text(edited.read_text() + "# another version\n")
    # Nothing runs with code that nobody asked for, and what is there stays.
    assert "Data and pipelines are up to date." in run(project, "dvc", "repro", **installed)
    before = (project / "vectors/images/manifest.json").read_bytes()
    output = run(project, "dvc", "repro", "--force", "check", fails=True, **installed)
    assert "code.yaml: stage 'check' has code" in output
    assert "run `fne upgrade`" in output
    told = run(project, "fne", "upgrade", **installed)
    assert "  run again   check, tokenize, train, encode, evaluate, baseline, report; " in told
    assert "  reused      finished rows of images, training runs" in told
    # DVC had removed them before the stage was refused.
    assert (project / "metrics/settings.json").is_file()
    output = run(project, "dvc", "repro", **installed)
    assert stages_run(output) == ["check", "tokenize", "train", "encode", "evaluate", "baseline", "report"]
    assert (project / "vectors/images/manifest.json").read_bytes() == before
    assert git(project, "diff", "--name-only").split() == ["code.yaml", "dvc.lock"]


def test_this_repository_ships_nothing_that_git_does_not_have(installed, tmp_path):
    shipped = python(
        installed,
        tmp_path,
        "from fne.core.code import *; print(*[p.relative_to(SHIPPED).as_posix() for p in SHIPPED.rglob('*') if p.is_file()])",
    )
    tracked = set(git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").split())
    assert set(shipped.split()) <= tracked
