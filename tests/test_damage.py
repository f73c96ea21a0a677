"""Bits that flip in DVC's cache or on a remote: detected, named, and repaired by the printed commands."""

# ruff: noqa: F401, F811  # `run` is a fixture

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fne.cli import main
from tests.support.projects import commit, dvc, new_repository
from tests.support.remotes import overwrite
from tests.support.stages import Run, run, write_activations

STORE = Path("features/activations")
PIPELINE = """
stages:
  extract:
    cmd: mkdir -p features && cp -r made features/activations
    deps: [made]
    outs: [features/activations]
"""


@pytest.fixture(scope="module")
def pushed(tmp_path_factory) -> Path:
    """A project whose store of activations is in the cache and on a remote beside it."""
    folder = tmp_path_factory.mktemp("team") / "project"
    write_activations(folder=str(folder / "made"))
    (folder / "dvc.yaml").write_text(PIPELINE)
    new_repository(folder)
    dvc(folder, "init", "--quiet")
    dvc(folder, "remote", "add", "--default", "team", "../objects")
    dvc(folder, "repro", "--quiet")
    commit(folder)
    dvc(folder, "push", "--quiet")
    return folder


@pytest.fixture
def project(run: Run, pushed, tmp_path, monkeypatch) -> Path:
    """A copy of it to work in, with parameters and a catalog."""
    folder = Path(shutil.copytree(pushed.parent, tmp_path / "team")) / "project"
    shutil.copy("params.yaml", folder)
    shutil.copytree("data", folder / "data")
    monkeypatch.chdir(folder)
    return folder


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    overwrite(path, bytes(content))


def copies(folder: Path, content: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == content]


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", *arguments])


def run_printed(commands: str) -> None:
    """Run what a user would copy from the terminal."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(commands, shell=True, check=True, capture_output=True, env=os.environ | {"PATH": path})


@pytest.mark.parametrize("name", ["*.h5", "manifest.json"])
def test_damage_in_the_cache_is_named_and_the_printed_commands_repair_it(project, run, name):
    file = sorted(STORE.glob(name))[0]
    (cached,) = copies(Path(".dvc/cache"), file.read_bytes())
    flip_a_bit(cached)
    shutil.rmtree(STORE)
    dvc(project, "checkout", "--quiet", "--allow-missing")
    assert "up to date" in dvc(project, "status"), "DVC notices this by itself now"

    refused = run("standardize")
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error: {file}: damaged")
    assert refused.stderr.endswith(f"; run `fne verify {STORE}` to see how to repair it\n")

    found = verify(str(STORE))
    assert found.exit_code == 2
    assert found.stderr.startswith(f"{file}: damaged")
    (commands,) = re.findall("fix both: `(.*?)`", found.stderr)
    assert commands == f"rm -rf {cached} {STORE} && dvc pull {STORE}"
    run_printed(commands)
    assert verify().exit_code == 0
    assert run("standardize").exit_code == 0


def test_damage_on_the_remote_is_found_by_reading_and_repaired(project):
    shard = sorted(STORE.glob("*.h5"))[0]
    (sent,) = copies(project.parent / "objects", shard.read_bytes())
    flip_a_bit(sent)
    assert verify("--remote", "team").exit_code == 0, "the size is right"
    found = verify("--remote", "team", "--read")
    assert found.exit_code == 2
    assert re.match(rf"{shard} \(\w+\) is damaged; fix: ", found.stderr)
    repaired = verify("--remote", "team", "--read", "--repair")
    assert (repaired.exit_code, repaired.stderr) == (0, "")
    assert sent.read_bytes() == shard.read_bytes()
