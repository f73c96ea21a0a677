"""What DVC knows, held against a real project of DVC's."""

import os
import shutil
from pathlib import Path

import pytest

from fne.commands.tracked import Out, added_out, content_md5, pipeline_outs, remedy, stage_sources
from tests.projects import commit, dvc, git

PIPELINE = """
stages:
  make:
    cmd: mkdir -p store/below && echo rows > store/rows && echo é > store/below/é && echo 1 > one && echo 2 > two
    deps: [source]
    outs: [store, one]
    metrics:
      - two:
          cache: false
"""
STORE, ONE, TWO = Path("store"), Path("one"), Path("two")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A project of one stage that has been run."""
    folder = tmp_path_factory.mktemp("project")
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@example.org")
    dvc(folder, "init", "--quiet")
    (folder / "dvc.yaml").write_text(PIPELINE)
    (folder / "source").write_text("source")
    dvc(folder, "repro")
    commit(folder)
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    """A copy of it to work in."""
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    return copy


def damage(path: Path) -> None:
    path.chmod(0o644)
    path.write_text("damaged")


def objects() -> list[Path]:
    return sorted(path for path in Path(".dvc/cache/files/md5").rglob("*") if path.is_file())


def test_outs_of_all_sorts_are_known_with_what_the_lock_file_names(project):
    outs = pipeline_outs()
    assert {path: (out.stage, out.cached) for path, out in outs.items()} == {
        STORE: ("make", True),
        ONE: ("make", True),
        TWO: ("make", False),
    }
    assert {path: content_md5(path) for path in outs} == {path: out.md5 for path, out in outs.items()}
    assert stage_sources() == [Path("source")]


def test_before_the_first_run_the_lock_file_names_nothing(project):
    Path("dvc.lock").unlink()
    assert [out.md5 for out in pipeline_outs().values()] == [None] * 3
    assert remedy(ONE, pipeline_outs()[ONE]) == "remove it and run `dvc repro make`"


def test_a_whole_copy_in_the_cache_is_checked_out(project):
    for path, file in ((ONE, ONE), (STORE, STORE / "rows")):
        damage(file)
        assert remedy(path, pipeline_outs()[path]) == f"remove it and run `dvc checkout {path}`"
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        dvc(project, "checkout", str(path))
        assert content_md5(path) == pipeline_outs()[path].md5


def test_a_copy_that_is_not_in_the_cache_is_pulled_or_made(project):
    damage(ONE)
    shutil.rmtree(".dvc/cache")
    assert remedy(ONE, pipeline_outs()[ONE]) == "remove it and run `dvc pull one`, or `dvc repro make`"


@pytest.mark.parametrize("path", [ONE, STORE])
def test_a_damaged_copy_in_the_cache_is_named_and_following_the_remedy_mends_both(project, path):
    for each in objects():
        damage(each)
    damage(ONE)
    damage(STORE / "rows")
    advice = remedy(path, pipeline_outs()[path])
    md5 = str(pipeline_outs()[path].md5)
    cached = Path(".dvc/cache/files/md5", md5[:2], md5[2:])
    assert advice == (
        f"its copy in the cache is damaged too; mend both: `rm -rf {cached} {path} && dvc pull {path}`; "
        "where no remote has it, the last command is `dvc repro make`"
    )
    for each in objects():
        each.unlink()
    for each in (ONE, TWO):
        each.unlink()
    shutil.rmtree(STORE)
    dvc(project, "repro", "make")
    assert content_md5(path) == md5


def test_all_files_within_a_store_whose_copies_are_damaged_are_named(project):
    damage(STORE / "rows")
    held = [b"rows\n", "é\n".encode()]
    cached = [each for content in held for each in objects() if each.read_bytes() == content]
    for each in cached:
        damage(each)
    named = remedy(STORE, pipeline_outs()[STORE]).split("`")[1].split()
    assert sorted(named[2:4]) == sorted(map(str, cached))
    assert named[4:] == ["store", "&&", "dvc", "pull", "store"]


def test_what_was_added_is_mended_without_a_stage(project):
    Path("mine").write_text("mine")
    assert added_out(Path("mine")) is None
    dvc(project, "add", "mine")
    out = added_out(Path("mine"))
    assert out == Out(Path("mine"), None, content_md5(Path("mine")), cached=True)
    assert (
        remedy(Path("mine"), out)
        == "it came so; have it mended where it was made, then run `dvc update mine.dvc`"
    )
    damage(Path("mine"))
    assert remedy(Path("mine"), out) == "remove it and run `dvc checkout mine`"
    (cached,) = [each for each in objects() if each.read_bytes() == b"mine"]
    damage(cached)
    assert remedy(Path("mine"), out).endswith(f"mend both: `rm -rf {cached} mine && dvc pull mine`")
    cached.unlink()
    assert remedy(Path("mine"), out) == "remove it and run `dvc pull mine`"


def test_what_git_keeps_comes_from_git(project):
    TWO.write_text("damaged")
    assert remedy(TWO, pipeline_outs()[TWO]) == "remove it and run `git checkout two`, or `dvc repro make`"


def test_what_is_as_its_stage_made_it_must_be_made_otherwise(project):
    assert remedy(ONE, pipeline_outs()[ONE]) == "run `dvc repro --force make`, which made it so"


def test_what_no_stage_writes_must_be_brought_again(project):
    assert remedy(Path("mine"), None) == (
        "no stage writes it: remove it and bring it again, or make it again with `fne import`"
    )


def test_without_a_pipeline_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (pipeline_outs(), stage_sources(), os.listdir()) == ({}, [], [])
