"""`fne verify --remote` on a remote that is a folder."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.core.errors import InputError
from fne.sharing.remote_verdict import verify_remote
from tests.support.projects import dvc, git
from tests.support.remotes import FILES, REMOTE, cached_object, make_project, overwrite, place, remote_object

OBJECTS = FILES + 2  # the folder's listing and the single file


@pytest.fixture(scope="module")
def pushed(tmp_path_factory) -> Path:
    return make_project(tmp_path_factory.mktemp("pushed"))


@pytest.fixture
def project(pushed, tmp_path, monkeypatch) -> Path:
    """A project whose remote has everything."""
    shutil.copytree(pushed.parent, tmp_path / "team", symlinks=True)
    monkeypatch.chdir(tmp_path / "team/project")
    return tmp_path / "team/project"


def faults(**options: object) -> list[str]:
    return verify_remote(REMOTE, **options).faults


def oid(project: Path, path: str) -> str:
    return "".join(place(project, path).parts)


def test_a_complete_remote_has_no_faults(project):
    result = verify_remote(REMOTE)
    assert result.faults == []
    line = result.summary
    assert line.startswith(f"{REMOTE} ({project.parent}/remote/files/md5): {OBJECTS} objects, 0.0 MB, ")
    assert f"{OBJECTS} intact, 1 of them read; " in line
    assert line.endswith(" objects/s")


def test_all_contents_are_read_on_request(project):
    assert f"{OBJECTS} intact, {OBJECTS} of them read; " in verify_remote(REMOTE, read=True).summary


@pytest.mark.parametrize("path", ["model.bin", "rows/3.bin", "rows"])
def test_a_missing_object_is_named_with_the_command_that_repairs_it(project, path):
    remote_object(project, path).unlink()
    assert faults() == [f"{path} ({oid(project, path)}) is missing; fix: fne verify --remote team --repair"]


def test_a_wrong_size_is_found_without_reading(project):
    overwrite(remote_object(project, "model.bin"), b"model" * 99)
    assert faults()[0].startswith(f"model.bin ({oid(project, 'model.bin')}) has 495 bytes instead of 500; ")


def test_a_wrong_size_inside_a_folder_is_found_by_the_sum(project):
    overwrite(remote_object(project, "rows/3.bin"), bytes([3]) * 102)
    (line,) = faults()
    assert line.startswith(f"rows/3.bin ({oid(project, 'rows/3.bin')}) is damaged; ")


@pytest.mark.parametrize("path", ["model.bin", "rows/3.bin"])
def test_changed_bits_are_found_by_reading(project, path):
    object_ = remote_object(project, path)
    overwrite(object_, b"x" * object_.stat().st_size)
    assert faults() == []
    assert faults(read=True)[0].startswith(f"{path} ({oid(project, path)}) is damaged; ")


def test_a_damaged_listing_of_a_folder_is_always_found(project):
    object_ = remote_object(project, "rows")
    overwrite(object_, object_.read_bytes().replace(b"11.bin", b"99.bin"))
    assert faults()[0].startswith(f"rows ({oid(project, 'rows')}) is damaged; ")


def test_a_listing_that_neither_remote_nor_cache_has_is_named(project):
    listing = oid(project, "rows")
    remote_object(project, "rows").unlink()
    cached_object(project, "rows").unlink()
    (line,) = faults()
    assert line.startswith(
        f"rows ({listing}) is missing, and the local cache does not have this listing of a folder either; "
    )


def test_records_of_dvc_about_the_remote_are_not_used(project):
    """DVC takes a folder whose list is there for complete, and pushes nothing."""
    remote_object(project, "rows/3.bin").unlink()
    assert "Everything is up to date." in dvc(project, "push")
    assert len(faults()) == 1
    assert faults(repair=True) == []
    assert remote_object(project, "rows/3.bin").read_bytes() == bytes([3]) * 103


@pytest.mark.parametrize("path", ["model.bin", "rows/3.bin", "rows"])
@pytest.mark.parametrize(
    "harm", [Path.unlink, lambda path: overwrite(path, b""), lambda path: overwrite(path, b"x" * 2000)]
)
def test_repair_sends_missing_and_damaged_objects(project, path, harm):
    good = remote_object(project, path).read_bytes()
    harm(remote_object(project, path))
    result = verify_remote(REMOTE, repair=True)
    assert result.faults == []
    assert result.summary.startswith("sent 1 again\n")
    assert remote_object(project, path).read_bytes() == good
    assert faults(read=True) == []


def test_an_empty_remote_can_be_repaired(project):
    shutil.rmtree(project.parent / "remote")
    assert len(faults()) == OBJECTS
    assert faults(read=True, repair=True) == []


def test_a_damaged_cache_object_is_never_sent(project):
    remote_object(project, "model.bin").unlink()
    overwrite(cached_object(project, "model.bin"), b"model" * 99 + b"wrong")
    local = cached_object(project, "model.bin")
    assert faults(repair=True) == [
        f"model.bin ({oid(project, 'model.bin')}) is missing; {local} is damaged; fix, if model.bin is intact: "
        f"rm -rf {local} && dvc add model.bin && fne verify --remote team --repair"
    ]
    assert not remote_object(project, "model.bin").exists()


def test_an_object_that_the_cache_does_not_have_cannot_be_sent(project):
    remote_object(project, "model.bin").unlink()
    cached_object(project, "model.bin").unlink()
    assert faults(repair=True) == [
        f"model.bin ({oid(project, 'model.bin')}) is missing; the local cache does not have it; fix, on the "
        "machine that made it or after `dvc repro`: fne verify --remote team --repair"
    ]


def test_many_faults_in_one_folder_are_summarized(project):
    for number in range(100, 130):
        (project / f"rows/{number}.bin").write_bytes(bytes([number]))
    dvc(project, "add", "--quiet", "rows")
    assert faults()[-1] == "rows: and 10 more objects"


def test_the_last_commit_is_checked_as_well_as_the_workspace(project):
    (project / "model.bin").write_bytes(b"new")
    dvc(project, "add", "--quiet", "model.bin")
    dvc(project, "push", "--quiet")
    assert faults() == []
    committed = oid(project, "model.bin")
    git(project, "checkout", "--quiet", "model.bin.dvc")
    remote_object(project, "model.bin").unlink()
    git(project, "checkout", "--quiet", "--", ".")
    assert faults()[0].startswith("model.bin (")
    assert committed not in faults()[0]


def test_older_commits_are_checked_on_request(project):
    first = remote_object(project, "model.bin")
    (project / "model.bin").write_bytes(b"new")
    dvc(project, "add", "--quiet", "model.bin")
    git(project, "commit", "--quiet", "--all", "--message", "New model")
    dvc(project, "push", "--quiet")
    first.unlink()
    assert faults() == []
    assert faults(all_commits=True)[0].startswith("model.bin (")
    assert faults(revisions=["HEAD~1"])[0].startswith("model.bin (")
    assert faults(revisions=["HEAD"]) == []


def test_files_that_git_keeps_are_not_expected(project):
    (project / "dvc.yaml").write_text(
        "stages:\n  count:\n    cmd: echo 3 > metric.json\n    metrics:\n    - metric.json:\n        cache: false\n"
    )
    dvc(project, "repro", "--quiet")
    assert faults() == []


def test_a_stage_that_never_ran_is_named(project):
    (project / "dvc.yaml").write_text("stages:\n  count:\n    cmd: echo 3 > three\n    outs:\n    - three\n")
    assert faults() == ["three: dvc.lock has no digest of it; fix: dvc repro"]


def test_a_pipeline_in_a_subfolder_that_never_ran_is_not_expected(project):
    stages = "stages:\n  count:\n    cmd: echo 3 > three\n    outs:\n    - three\n"
    (project / "other").mkdir()
    (project / "other/dvc.yaml").write_text(stages)
    assert faults() == []
    dvc(project, "repro", "--quiet", "other/dvc.yaml")
    (project / "other/dvc.yaml").write_text(
        f"{stages}  more:\n    cmd: echo 4 > four\n    outs:\n    - four\n"
    )
    assert [fault.split(" ")[0] for fault in faults()] == ["other/three", "other/four:"]


def test_the_run_cache_is_complete_only_with_the_results(project):
    (project / "dvc.yaml").write_text(
        "stages:\n  copy:\n    cmd: cp model.bin copy.bin; echo $0 >> copy.bin\n    deps: [model.bin]\n    outs: [copy.bin]\n"
    )
    dvc(project, "repro", "--quiet")
    (project / "dvc.yaml").unlink()
    (project / "dvc.lock").unlink()
    dvc(project, "push", "--quiet", "--run-cache")  # the entry, but not its result
    assert faults(run_cache=True)[0].startswith("copy.bin (")
    assert faults(run_cache=True, repair=True) == []
    shutil.rmtree(project.parent / "remote/runs")
    assert faults(run_cache=True)[0].startswith("runs/")
    assert faults(run_cache=True, repair=True) == []


def test_an_unknown_remote_lists_the_existing_ones(project):
    with pytest.raises(InputError) as caught:
        verify_remote("x")
    assert str(caught.value.message).startswith("remote 'x': ")
    assert str(caught.value.message).endswith("; the remotes are: team")


def test_an_unknown_revision_is_an_error(project):
    with pytest.raises(InputError, match="unknown Git revision 'nowhere'"):
        verify_remote(REMOTE, revisions=["nowhere"])


def test_a_remote_needs_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not a DVC project; run this in the project's folder"):
        verify_remote(REMOTE)


def fne(*arguments: str):
    return CliRunner().invoke(main, ["verify", *arguments])


def test_the_command_prints_the_faults_and_fails(project):
    good = fne("--remote", REMOTE)
    assert (good.exit_code, good.stderr) == (0, "")
    assert good.stdout.startswith("team (")
    remote_object(project, "model.bin").unlink()
    bad = fne("--remote", REMOTE)
    assert (bad.exit_code, bad.stderr) == (
        2,
        f"model.bin ({oid(project, 'model.bin')}) is missing; fix: fne verify --remote team --repair\n",
    )
    assert fne("--remote", REMOTE, "--repair").exit_code == 0


@pytest.mark.parametrize("arguments", [["--repair"], ["--rev", "HEAD"], ["--remote", REMOTE, "features"]])
def test_options_of_remotes_and_artifacts_do_not_mix(arguments):
    result = fne(*arguments)
    assert result.exit_code == 2
    assert "name either artifacts or --remote NAME; the other options go with --remote" in result.stderr
