import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fne.core.dvc import Stage, bytes_md5
from fne.experiments import effective_settings
from fne.store.checksums import parse_metrics
from stages.check import main
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import write_catalog

CHECKED, SETTINGS = "checked/parameters.txt", "metrics/settings.json"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*more: str) -> Result:
    return CliRunner().invoke(main, [CHECKED, SETTINGS, *more])


def recorded() -> dict[str, dict[str, object]]:
    return parse_metrics(Path(SETTINGS).read_bytes())


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
    assert result.stderr.endswith("with `git checkout params.yaml metrics/settings.json`\n")
    assert Path(CHECKED).is_file()
    assert not Path(SETTINGS).exists()


def test_a_refused_value_costs_no_recorded_settings(project, monkeypatch):
    assert run().exit_code == 0
    before = Path(SETTINGS).read_bytes()
    Path(SETTINGS).unlink()  # as DVC does before it runs the stage
    stage = Stage("check", outs={SETTINGS: bytes_md5(before)})
    monkeypatch.setattr(effective_settings, "recorded_stages", lambda: [stage])
    change_params(project, {"train": {"loss": "triplet"}})
    result = run()
    assert result.exit_code == 2
    assert Path(SETTINGS).read_bytes() == before
    assert result.stderr.endswith("`git checkout params.yaml`\n")


def test_settings_of_another_run_or_with_a_flipped_bit_are_not_put_back(project, monkeypatch):
    assert run().exit_code == 0
    md5 = bytes_md5(Path(SETTINGS).read_bytes())
    Path(SETTINGS).unlink()
    (kept,) = Path(".fne/settings").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b" ")
    change_params(project, {"train": {"loss": "triplet"}})
    for recorded_md5 in (md5, "0" * 32):
        stage = Stage("check", outs={SETTINGS: recorded_md5})
        monkeypatch.setattr(effective_settings, "recorded_stages", lambda stage=stage: [stage])
        assert run().exit_code == 2
        assert not Path(SETTINGS).exists()


def test_settings_of_the_file_and_of_the_code_are_recorded_apart(project):
    change_params(project, {"train": {"loss": "max_hinge", "clip": 2.0}})
    assert run().exit_code == 0
    found = recorded()
    assert found.keys() == {"params.yaml", "default"}
    assert (found["params.yaml"]["train.loss"], found["params.yaml"]["train.clip"]) == (["max_hinge"], 2.0)
    assert found["default"]["train.max_hinge.hardest"] == "query"
    assert not [key for key in {**found["params.yaml"], **found["default"]} if "top_k_hinge" in key]


def test_a_pipeline_records_its_own_settings_and_names_its_file_as_the_remedy(project):
    own = "pipelines/tagging/params.yaml"
    Path(own).parent.mkdir(parents=True)
    shutil.copy(ROOT / own, own)
    change_params(project, {"train_tagger": {"units": 64}})
    assert run("--pipeline", "tagging").exit_code == 0
    assert recorded()[own]["train_tagger.units"] == 64
    assert "train_tagger.order" in recorded()["default"]
    assert not [key for values in recorded().values() for key in values if key.startswith("train.")]
    change_params(project, {"train_tagger": {"units": 0}})
    result = run("--pipeline", "tagging")
    assert result.exit_code == 2
    assert f"`git checkout params.yaml {own}`" in result.stderr


def test_the_parameter_file_gets_a_new_time_so_that_git_looks_at_its_content(project):
    os.utime("params.yaml", (0, 0))
    run()
    assert Path("params.yaml").stat().st_mtime > 0


def test_a_store_may_be_imported_after_the_catalog_is_made(project):
    change_params(project, {"embed": {"source": "features/imported"}})
    result = run()
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: params.yaml: section 'embed': source: no row store in ")
    write_catalog()
    assert run().exit_code == 2
