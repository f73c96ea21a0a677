import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stages.check import main
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import write_catalog

CHECKED = "checked/parameters.txt"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run() -> Result:
    return CliRunner().invoke(main, [CHECKED])


def test_the_output_is_the_same_for_all_valid_parameters(project):
    assert run().exit_code == 0
    before = Path(CHECKED).read_bytes()
    change_params(project, {"train": {"loss": "max_hinge"}})
    assert run().exit_code == 0
    assert Path(CHECKED).read_bytes() == before


def test_a_refused_value_leaves_the_output_and_says_how_to_get_back(project):
    change_params(project, {"train": {"loss": "triplet"}})
    result = run()
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: params.yaml: section 'train': loss: 'triplet' is not one of ")
    assert result.stderr.endswith(
        "\nNo result was removed; set a valid value, or restore the committed ones with `git checkout params.yaml`\n"
    )
    assert Path(CHECKED).is_file()


def test_the_parameter_file_gets_a_new_time_so_that_git_looks_at_its_content(project):
    os.utime("params.yaml", (0, 0))
    run()
    assert Path("params.yaml").stat().st_mtime > 0


def test_a_store_may_be_imported_after_the_catalog_is_made(project):
    change_params(project, {"embed": {"source": "features/imported"}})
    result = run()
    assert (result.exit_code, result.stderr) == (
        0,
        "Warning: params.yaml: section 'embed': source: no row store in 'features/imported'; use "
        "features/activations, or a store that `fne import` or `fne join` wrote\n",
    )
    write_catalog()
    assert run().exit_code == 2
