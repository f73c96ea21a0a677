import json
import shutil

import pytest

from fne.core.errors import InputError
from fne.paper.project import WORKSPACE, opened
from tests.paper.samples import FLICKR8K, project, run
from tests.projects import change_params, commit, dvc, git


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A project with a run in the work tree, an experiment of another seed, and a third one queued."""
    folder = project(tmp_path_factory.mktemp("runs") / "project", "FNE-SH", "demo")
    run(folder)
    dvc(folder, "exp", "run", "--quiet", "--name", "second", "-S", "train.seed=1")
    git(folder, "checkout", "--quiet", "--force", "HEAD")
    dvc(folder, "checkout", "--quiet")
    dvc(folder, "exp", "run", "--quiet", "--queue", "-S", "train.seed=2")
    return folder


@pytest.fixture
def folder(original, tmp_path):
    shutil.copytree(original, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def names(folder):
    with opened(folder) as found:
        return [each.name for each in found.runs()]


def test_runs_of_the_work_tree_and_of_experiments_are_found_with_what_was_recorded(original):
    with opened(original) as found:
        first, second = found.runs()
    assert (first.name, first.seed, first.started) == (WORKSPACE, 0, True)
    assert (second.name, second.seed, second.started) == ("second", 1, False)
    assert first.kind == second.kind
    assert first.counts == {"train": (12, 60), "val": (4, 20), "test": (6, 30)}
    assert first.settings["train"]["embed_dim"] == 256
    assert first.ranks is not None
    assert first.ranks["image_ranks"].tolist() != second.ranks["image_ranks"].tolist()


def test_queued_experiments_are_known_by_their_parameters(original):
    with opened(original) as found:
        assert [settings["train"]["seed"] for settings in found.queued()] == [2]


def test_settings_are_those_of_the_run_and_not_of_a_parameter_file_that_was_edited_later(folder):
    change_params(folder, {"train": {"margin": 9.0}})
    with opened(folder) as found:
        assert found.run(WORKSPACE).settings["train"]["margin"] == 0.2


def test_metrics_that_are_not_those_of_the_lock_are_nobodys(folder):
    metrics = folder / "metrics/retrieval.json"
    metrics.write_text(json.dumps(json.loads(metrics.read_text()), indent=1))
    assert names(folder) == ["second"]


def test_metrics_of_another_layout_are_no_run_of_ours(folder):
    (folder / "stage.py").write_text(
        (folder / "stage.py").read_text().replace('"captions": 5', '"sentences": 5')
    )
    run(folder)
    assert names(folder) == ["second"]


def test_experiments_of_one_name_are_told_apart_by_where_they_started(folder):
    references = git(folder, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    [reference] = [each for each in references if each.endswith("/second")]
    commit_id, baseline = git(folder, "rev-parse", reference).strip(), "".join(reference.split("/")[2:4])
    git(folder, "update-ref", f"refs/exps/{commit_id[:2]}/{commit_id[2:]}/second", commit_id)
    expected = {f"second@{start[:7]}" for start in (baseline, commit_id)}
    with opened(folder) as found:
        assert {each.name for each in found.runs()} == {WORKSPACE, *expected}
        assert found.run(f"second@{baseline[:7]}").seed == 1


def test_a_catalog_that_cannot_be_read_is_not_known(folder):
    for cached in (folder / ".dvc/cache").rglob("*"):
        if cached.is_file() and cached.read_bytes().startswith(b"{") and b'"split"' in cached.read_bytes():
            cached.chmod(0o644)
            cached.write_text("no catalog\n")
    with opened(folder) as found:
        assert found.run("second").counts is None


def test_without_git_there_is_the_work_tree_alone(folder):
    shutil.rmtree(folder / ".git")
    with pytest.raises(InputError) as caught, opened(folder):
        pass
    assert caught.value.message == (
        f"{folder}: not in a Git repository; run `git init`, or `dvc config core.no_scm true`"
    )
    dvc(folder, "config", "core.no_scm", "true")
    assert names(folder) == [WORKSPACE]
    with opened(folder) as found:
        assert found.queued() == []
        with pytest.raises(InputError, match="no experiment or revision 'HEAD'; there are: workspace$"):
            found.run("HEAD")


def test_before_the_first_commit_and_the_first_run_there_is_nothing(tmp_path):
    git(tmp_path, "init", "--quiet")
    dvc(tmp_path, "init", "--quiet")
    assert names(tmp_path) == []
    with opened(tmp_path) as found:
        assert found.queued() == []
        with pytest.raises(InputError, match="'workspace' has no finished run .*; there are: none$"):
            found.run(WORKSPACE)


def test_without_the_cache_an_experiment_is_still_found_but_less_is_known(folder):
    shutil.rmtree(folder / ".dvc/cache")
    with opened(folder) as found:
        here, gone = found.runs()
    assert here.ranks is not None  # the work tree has its own copy
    assert gone.ranks is None
    assert gone.counts == here.counts  # of the same catalog, which is still here
    assert gone.measured[0].images == 6


def test_a_revision_names_its_run_and_another_catalog_makes_another_kind(folder):
    (folder / "facts.json").write_text(FLICKR8K)
    run(folder, "train.seed=7")
    with opened(folder) as found:
        before, after = found.run("HEAD~1"), found.run("HEAD")
    assert (before.seed, after.seed) == (0, 7)
    assert after.counts["train"] == (6000, 30000)
    assert before.kind != after.kind


def test_what_is_not_there_is_refused(folder):
    with opened(folder) as found, pytest.raises(InputError) as caught:
        found.run("third")
    assert caught.value.message == "there is no experiment or revision 'third'; there are: workspace, second"
    git(folder, "rm", "--quiet", "dvc.lock")
    commit(folder)
    with opened(folder) as found, pytest.raises(InputError) as caught:
        found.run("HEAD")
    assert caught.value.message == (
        "'HEAD' has no finished run (metrics/retrieval.json and dvc.lock); there are: second"
    )


def test_outside_of_a_project_there_are_no_runs(tmp_path):
    with pytest.raises(InputError) as caught, opened(tmp_path):
        pass
    assert caught.value.message == f"{tmp_path}: not a DVC project; run this in the project's folder"
