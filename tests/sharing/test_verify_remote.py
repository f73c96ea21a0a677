"""`fne verify --remote` on a remote that is a folder."""

import json
import shutil
from pathlib import Path

import pytest

from fne.sharing.remote_verdict import verify_remote
from tests.support import commands
from tests.support.commands import fne
from tests.support.projects import dvc, git
from tests.support.refusals import refused
from tests.support.remotes import FILES, REMOTE, cached_object, overwrite, place, remote_object

OBJECTS = FILES + 2  # the folder's listing and the single file


def faults(**options: object) -> list[str]:
    return verify_remote(REMOTE, **options).faults


def oid(project: Path, path: str) -> str:
    return "".join(place(project, path).parts)


def test_a_complete_remote_has_no_faults_and_all_contents_are_read_on_request(project):
    result = verify_remote(REMOTE)
    assert result.faults == []
    line = result.summary
    assert line.startswith(f"{REMOTE} ({project.parent}/remote/files/md5): {OBJECTS} objects, 0.0 MB, ")
    assert f"{OBJECTS} intact, 1 of them read; " in line
    assert line.endswith(" objects/s")
    assert f"{OBJECTS} intact, {OBJECTS} of them read; " in verify_remote(REMOTE, read=True).summary


@pytest.mark.parametrize("path", ["model.bin", "rows/3.bin", "rows"])
def test_a_missing_object_is_named_with_the_command_that_repairs_it(project, path):
    remote_object(project, path).unlink()
    assert faults() == [f"{path} ({oid(project, path)}) is missing; fix: fne verify --remote team --repair"]


def test_a_wrong_size_is_found_without_reading_and_inside_a_folder_by_the_sum(project):
    overwrite(remote_object(project, "model.bin"), b"model" * 99)
    overwrite(remote_object(project, "rows/3.bin"), bytes([3]) * 102)
    model, row = sorted(faults())
    assert model.startswith(f"model.bin ({oid(project, 'model.bin')}) has 495 bytes instead of 500; ")
    assert row.startswith(f"rows/3.bin ({oid(project, 'rows/3.bin')}) is damaged; ")


@pytest.mark.parametrize("path", ["model.bin", "rows/3.bin"])
def test_changed_bits_are_found_by_reading(project, path):
    object_ = remote_object(project, path)
    overwrite(object_, b"x" * object_.stat().st_size)
    assert faults() == []
    assert faults(read=True)[0].startswith(f"{path} ({oid(project, path)}) is damaged; ")


def test_a_listing_of_a_folder_that_is_damaged_or_lost_is_always_found(project):
    object_, listing = remote_object(project, "rows"), oid(project, "rows")
    overwrite(object_, object_.read_bytes().replace(b"11.bin", b"99.bin"))
    assert faults()[0].startswith(f"rows ({listing}) is damaged; ")
    object_.unlink()
    cached_object(project, "rows").unlink()
    (line,) = faults()
    said = f"rows ({listing}) is missing, and the local cache does not have this listing of a folder either; "
    assert line.startswith(said)


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


def test_a_cache_object_that_is_damaged_or_lost_is_never_sent(project):
    remote_object(project, "model.bin").unlink()
    local = cached_object(project, "model.bin")
    overwrite(local, b"model" * 99 + b"wrong")
    missing = f"model.bin ({oid(project, 'model.bin')}) is missing; "
    assert faults(repair=True) == [
        f"{missing}{local} is damaged; fix, if model.bin is intact: "
        f"rm -rf {local} && dvc add model.bin && fne verify --remote team --repair"
    ]
    local.unlink()
    (line,) = faults(repair=True)
    assert line.startswith(f"{missing}the local cache does not have it; fix, on the machine that made it or ")
    assert line.endswith("`dvc repro`: fne verify --remote team --repair")
    assert not remote_object(project, "model.bin").exists()


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


def stage(name: str, command: str, **more: object) -> str:
    return json.dumps({"stages": {name: {"cmd": command} | more}})


def test_of_outputs_those_that_git_keeps_are_not_expected_and_those_of_a_stage_that_never_ran_are_named(
    project,
):
    kept = stage("count", "echo 3 > metric.json", metrics=[{"metric.json": {"cache": False}}])
    (project / "dvc.yaml").write_text(kept)
    dvc(project, "repro", "--quiet")
    assert faults() == []
    (project / "dvc.yaml").write_text(stage("count", "echo 3 > three", outs=["three"]))
    assert faults() == ["three: dvc.lock has no digest of it; fix: dvc repro"]


def test_a_pipeline_in_a_subfolder_that_never_ran_is_not_expected(project):
    stages = {"count": {"cmd": "echo 3 > three", "outs": ["three"]}}
    (project / "other").mkdir()
    (project / "other/dvc.yaml").write_text(json.dumps({"stages": stages}))
    assert faults() == []
    dvc(project, "repro", "--quiet", "other/dvc.yaml")
    stages["more"] = {"cmd": "echo 4 > four", "outs": ["four"]}
    (project / "other/dvc.yaml").write_text(json.dumps({"stages": stages}))
    assert [fault.split(" ")[0] for fault in faults()] == ["other/three", "other/four:"]


def test_the_run_cache_is_complete_only_with_the_results(project):
    command = "cp model.bin copy.bin; echo $0 >> copy.bin"
    (project / "dvc.yaml").write_text(stage("copy", command, deps=["model.bin"], outs=["copy.bin"]))
    dvc(project, "repro", "--quiet")
    (project / "dvc.yaml").unlink()
    (project / "dvc.lock").unlink()
    dvc(project, "push", "--quiet", "--run-cache")  # the entry, but not its result
    assert faults(run_cache=True)[0].startswith("copy.bin (")
    assert faults(run_cache=True, repair=True) == []
    shutil.rmtree(project.parent / "remote/runs")
    assert faults(run_cache=True)[0].startswith("runs/")
    assert faults(run_cache=True, repair=True) == []


def test_an_unknown_remote_or_revision_is_an_error_and_a_remote_needs_a_project(
    project, tmp_path, monkeypatch
):
    with refused("remote 'x': ", "; the remotes are: team"):
        verify_remote("x")
    with refused("unknown Git revision 'nowhere'"):
        verify_remote(REMOTE, revisions=["nowhere"])
    monkeypatch.chdir(tmp_path)
    with refused("not a DVC project; run this in the project's folder"):
        verify_remote(REMOTE)


def test_the_command_prints_the_faults_and_fails(project):
    good = fne("verify", "--remote", REMOTE)
    assert (good.exit_code, good.stderr) == (0, "")
    assert good.stdout.startswith("team (")
    remote_object(project, "model.bin").unlink()
    bad = fne("verify", "--remote", REMOTE)
    said = f"model.bin ({oid(project, 'model.bin')}) is missing; fix: fne verify --remote team --repair\n"
    assert (bad.exit_code, bad.stderr) == (2, said)
    assert fne("verify", "--remote", REMOTE, "--repair").exit_code == 0


@pytest.mark.parametrize("arguments", [["--repair"], ["--rev", "HEAD"], ["--remote", REMOTE, "features"]])
def test_options_of_remotes_and_artifacts_do_not_mix(arguments):
    said = commands.refused("verify", *arguments)
    assert "name either artifacts or --remote NAME; the other options go with --remote" in said
