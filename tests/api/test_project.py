from fne.api.project import find_project
from tests.support.imports import ROOT


def test_a_project_is_found_above_its_files(tmp_path):
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    found = find_project(tmp_path / "features/embeddings")
    assert found is not None
    assert found.params == tmp_path / "params.yaml"


def test_parameters_of_another_program_are_no_project(tmp_path):
    (tmp_path / "params.yaml").write_text("model:\n  depth: 3\n")
    assert find_project(tmp_path / "features/embeddings") is None
