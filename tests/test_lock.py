"""The committed lock file belongs to the committed code and parameters."""

from tests.support.projects import copy_project, dvc, stages_run


def test_a_fresh_clone_has_nothing_to_run(tmp_path):
    output = dvc(copy_project(tmp_path), "repro", "--dry", "--allow-missing")
    assert stages_run(output) == []
    assert "Data and pipelines are up to date." in output
