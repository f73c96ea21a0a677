import re

import pytest
from ruamel.yaml import YAML

from fne.core.code import CODE, SHIPPED, code_of_stages, shipped_pipelines
from fne.core.settings import parse_yaml
from fne.experiments.effective_settings import SECTIONS
from fne.projects.template import OPTIONAL, parameters, pipeline, project_files
from tests.support.imports import ROOT

LIBRARY = ("fne/", "stages/", "papers/")
ALL = project_files(OPTIONAL, {})


def load(text):
    return YAML(typ="safe").load(text)


@pytest.mark.parametrize("name", shipped_pipelines())
def test_a_pipeline_of_a_project_is_that_of_this_repository_with_installed_stages(name):
    """Only commands, code and its digests differ; so this repository is a project, too."""
    ours, theirs = load(shipped_pipelines()[name]), load(pipeline(name))
    for block in ours["stages"].values():
        script = re.search(r"stages\.(\w+)", block["cmd"])[1]
        block["cmd"] = block["cmd"].replace("python -m stages.", "python -m fne.stages.")
        block["params"] = [{CODE: [f"code.{script}"]}, *block.get("params", [])]
        block["deps"] = [each for each in block["deps"] if not each.startswith(LIBRARY)]
        if not block["deps"]:
            del block["deps"]
    assert theirs == ours


def test_all_other_files_are_those_of_this_repository():
    for path, text in ALL.items():
        if path not in ("README.md", CODE) and not path.endswith("dvc.yaml"):
            assert text == (ROOT / path).read_text(), path
    assert {path for path in ALL if path.startswith("weights/")} == {
        f"weights/{each.name}" for each in (SHIPPED / "weights").iterdir()
    }


def test_every_stage_of_a_project_has_a_digest():
    recorded = load(ALL[CODE])["code"]
    assert recorded.keys() == code_of_stages().keys()
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in recorded.values())


def test_a_pipeline_that_is_off_here_is_on_in_a_project():
    for name in ("finetuning", "imported"):
        text = ALL[f"pipelines/{name}/dvc.yaml"]
        assert text.startswith("# ")
        assert "pipeline.yaml" not in text


def test_own_data_needs_nothing_of_the_demo():
    root = "/data/my photos: 'x' #1"
    files = project_files([], {"root": root, "test_from_train": 0.1})
    assert not any("demo" in path for path in files)
    assert "render" not in files["dvc.yaml"]
    params = parse_yaml(files["params.yaml"].encode(), "params.yaml")
    assert params["catalog"]["root"] == root
    assert params["catalog"]["test_from_train"] == 0.1
    assert params.keys() == parse_yaml(parameters({}).encode(), "").keys() - {"render"}
    assert params.keys() <= SECTIONS.keys()


def test_the_readme_has_at_most_ten_lines():
    assert len(ALL["README.md"].splitlines()) <= 10
