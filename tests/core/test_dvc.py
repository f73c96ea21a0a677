"""The adapter to DVC, tested on real projects and on hostile files."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fne.core.dvc import (
    NoProjectError,
    PipelineOut,
    added_out,
    bytes_md5,
    cache_folder,
    cache_object,
    content_md5,
    last_run,
    locked_dependencies,
    open_repo,
    out_of,
    parse_listing,
    pipeline_files,
    pipeline_outs,
    project_path,
    read_listing,
    read_stages,
    recorded_stages,
    repair_advice,
    tracked_path,
)
from tests.support.projects import commit, dvc, new_repository
from tests.support.refusals import refused

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
# As in `pipelines/demo/dvc.yaml`: a pipeline of its own, run in the root.
BELOW = """
stages:
  draw:
    wdir: ../..
    cmd: mkdir -p data && echo drawn > data/drawn
    params: [draw]
    outs: [data/drawn]
  here:
    cmd: echo here > here
    deps: [../../source]
    outs: [here]
"""
STORE, ONE, TWO, DRAWN, HERE = map(Path, ("store", "one", "two", "data/drawn", "pipelines/below/here"))
MD5 = "0" * 32


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A project of two pipeline files that have been run."""
    folder = tmp_path_factory.mktemp("project")
    new_repository(folder)
    dvc(folder, "init", "--quiet")
    (folder / "pipelines/below").mkdir(parents=True)
    (folder / "dvc.yaml").write_text(PIPELINE)
    (folder / "pipelines/below/dvc.yaml").write_text(BELOW)
    (folder / "params.yaml").write_text("draw: {word: drawn}")
    (folder / "source").write_text("source")
    dvc(folder, "repro", "--all-pipelines")
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


def test_outs_of_all_kinds_and_pipelines_are_known_with_their_recorded_digests(project):
    outs = pipeline_outs()
    assert {path: (out.stage, out.cached) for path, out in outs.items()} == {
        STORE: ("make", True),
        ONE: ("make", True),
        TWO: ("make", False),
        DRAWN: ("pipelines/below/dvc.yaml:draw", True),
        HERE: ("pipelines/below/dvc.yaml:here", True),
    }
    assert {path: content_md5(path) for path in outs} == {path: out.md5 for path, out in outs.items()}
    assert locked_dependencies() == [Path("source"), Path("source")]


def test_what_is_not_in_the_cache_is_pulled_or_computed_by_an_address_that_dvc_takes(project):
    damage(DRAWN)
    shutil.rmtree(".dvc/cache")
    advice = repair_advice(DRAWN, pipeline_outs()[DRAWN])
    assert advice == "remove it and run `dvc pull data/drawn`, or `dvc repro pipelines/below/dvc.yaml:draw`"
    DRAWN.unlink()
    dvc(project, "repro", "pipelines/below/dvc.yaml:draw")
    assert content_md5(DRAWN) == pipeline_outs()[DRAWN].md5


def test_a_stage_has_the_inputs_outputs_and_parameters_of_its_last_run(project):
    stage = last_run(DRAWN)
    assert stage.address == "pipelines/below/dvc.yaml:draw"
    assert stage.params == {"params.yaml": {"draw": {"word": "drawn"}}}
    assert last_run(ONE).deps == {"source": content_md5(Path("source"))}
    assert last_run(HERE).deps == last_run(ONE).deps
    with refused("nowhere: no lock file records it; run `dvc repro`"):
        last_run(Path("nowhere"))


def test_parameters_that_stand_for_a_dependency_are_known():
    block = {"cmd": "x", "deps": ["data", "${catalog.root}", "${a}/b", 3]}
    content = json.dumps({"stages": {"make": block}}).encode()
    [stage] = read_stages(["dvc.yaml"], lambda name: content if name == "dvc.yaml" else None)
    assert stage.paths == ("catalog.root",)


def test_a_stage_that_was_removed_is_still_in_its_lock_file(project):
    Path("dvc.yaml").write_text("stages: {}")
    assert last_run(ONE).address == "make"
    assert ONE not in pipeline_outs()


def test_before_the_first_run_nothing_is_recorded(project):
    Path("dvc.lock").unlink()
    assert [pipeline_outs()[path].md5 for path in (STORE, ONE, TWO)] == [None] * 3
    assert repair_advice(ONE, pipeline_outs()[ONE]) == "remove it and run `dvc repro make`"


def test_an_intact_copy_in_the_cache_is_checked_out_also_of_a_single_file_of_a_folder(project):
    outs, rows = pipeline_outs(), STORE / "rows"
    for file in (ONE, rows):
        damage(file)
    for path in (ONE, STORE, rows):
        assert repair_advice(path, out_of(path, outs)) == f"remove it and run `dvc checkout {path}`"
    ONE.unlink()
    rows.unlink()
    dvc(project, "checkout", "one", "store/rows")
    assert [content_md5(path) for path in (ONE, STORE)] == [outs[path].md5 for path in (ONE, STORE)]
    damage(rows)
    shutil.rmtree(STORE)
    dvc(project, "checkout", "store")
    assert content_md5(STORE) == outs[STORE].md5


def test_a_damaged_copy_in_the_cache_is_named_and_the_advice_repairs_both(project):
    for each in (*objects(), ONE, STORE / "rows"):
        damage(each)
    outs = pipeline_outs()
    for path in (ONE, STORE):
        md5 = str(outs[path].md5)
        cached = Path(".dvc/cache/files/md5", md5[:2], md5[2:])
        assert repair_advice(path, outs[path]) == (
            f"its copy in the cache is damaged too; fix both: `rm -rf {cached} {path} && dvc pull {path}`; "
            "if no remote has it, run `dvc repro make` instead of `dvc pull`"
        )
    for each in (*objects(), ONE, TWO):
        each.unlink()
    shutil.rmtree(STORE)
    dvc(project, "repro", "make")
    assert [content_md5(path) for path in (ONE, STORE)] == [outs[path].md5 for path in (ONE, STORE)]


def test_all_damaged_cache_objects_of_a_folder_are_named(project):
    damage(STORE / "rows")
    held = [b"rows\n", "é\n".encode()]
    cached = [each for content in held for each in objects() if each.read_bytes() == content]
    for each in cached:
        damage(each)
    named = repair_advice(STORE, pipeline_outs()[STORE]).split("`")[1].split()
    assert sorted(named[2:4]) == sorted(map(str, cached))
    assert named[4:] == ["store", "&&", "dvc", "pull", "store"]


def test_an_added_file_is_repaired_without_a_stage(project):
    mine = Path("mine")
    mine.write_text("mine")
    assert added_out(mine) is None
    dvc(project, "add", "mine")
    out = added_out(mine)
    assert out == PipelineOut(mine, None, content_md5(mine), cached=True)
    advice = repair_advice(mine, out)
    assert advice == "the imported copy is itself damaged; fix it upstream, then run `dvc update mine.dvc`"
    damage(mine)
    kept = "it is not removed, because the change may be yours; run `mv mine mine.before && dvc"
    assert repair_advice(mine, out) == f"{kept} checkout mine`"
    (cached,) = [each for each in objects() if each.read_bytes() == b"mine"]
    damage(cached)
    both = f"fix both: `rm -rf {cached} && mv mine mine.before && dvc pull mine`"
    assert repair_advice(mine, out).endswith(both)
    cached.unlink()
    assert repair_advice(mine, out) == f"{kept} pull mine`"


def test_what_the_cache_cannot_repair_comes_from_git_from_its_stage_or_from_where_it_was_copied(project):
    TWO.write_text("damaged")
    outs = pipeline_outs()
    assert repair_advice(TWO, outs[TWO]) == "remove it and run `git checkout two`, or `dvc repro make`"
    assert repair_advice(ONE, outs[ONE]) == "its stage wrote it so; run `dvc repro --force make`"
    advice = "no stage writes it; copy it again from where it came, or import it again with `fne import`"
    assert repair_advice(Path("mine"), None) == advice


def test_without_a_pipeline_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (pipeline_outs(), locked_dependencies(), os.listdir()) == ({}, [], [])


def test_a_cache_that_cannot_be_found_is_part_of_the_advice(project):
    damage(ONE)
    (project / ".dvc/config").write_text("[core\n")
    advice = repair_advice(ONE, pipeline_outs()[ONE])
    assert advice.startswith("its copy in the cache cannot be checked: ")
    assert f"{project}: DVC's configuration is broken: " in advice
    assert "\n" not in advice


def test_a_project_opens_in_its_folder_and_below(project):
    for folder in (None, project, project / "pipelines/below"):
        with open_repo(folder) as repo:
            assert Path(repo.root_dir) == project
    assert cache_folder() == project / ".dvc/cache/files/md5"


def test_a_folder_without_a_project_is_named(tmp_path, monkeypatch):
    said = f"^{tmp_path}: not a DVC project; run this in the project's folder$"
    with pytest.raises(NoProjectError, match=said), open_repo(tmp_path):
        pass
    monkeypatch.chdir(tmp_path)
    assert cache_folder() == tmp_path / ".dvc/cache/files/md5"


def test_a_project_outside_git_is_named(project):
    shutil.rmtree(".git")
    said = f"{project}: not in a Git repository; run `git init`, or `dvc config core.no_scm true`"
    with refused(said), open_repo():
        pass


def test_a_broken_configuration_is_one_line(project):
    Path(".dvc/config").write_text("[core\nremote = x")
    said = f"{project}: DVC's configuration is broken: ", "; see `dvc config --list --show-origin`"
    with refused(*said) as caught, open_repo():
        pass
    assert "\n" not in caught.value.message


def test_paths_are_tracked_if_they_or_a_folder_above_were_added_or_are_outs(project):
    Path("dvc.lock").write_text("<<<<<<< HEAD")  # it does not matter
    (project / "mine/deep").mkdir(parents=True)
    found = {
        path: tracked_path(project / path, project) is not None
        for path in ("mine/deep", "store/below", "data/drawn", "data")
    }
    assert found == {"mine/deep": False, "store/below": True, "data/drawn": True, "data": False}
    (project / "mine.dvc").touch()
    assert tracked_path(project / "mine/deep", project)


def test_a_path_is_known_however_it_is_typed(project):
    for typed in (project / "store", Path("pipelines/../store"), Path("store")):
        assert project_path(typed) == STORE
    assert project_path(Path("/elsewhere/store")) == Path("/elsewhere/store")


def test_pipeline_files_are_those_of_the_root_and_of_pipelines(project):
    (project / "pipelines/below/deeper").mkdir()
    (project / "pipelines/below/deeper/dvc.yaml").touch()
    assert pipeline_files() == pipeline_files(project) == ["dvc.yaml", "pipelines/below/dvc.yaml"]


def lock_of(**recorded: object) -> bytes:
    return json.dumps({"stages": {"make": recorded}}).encode()


NO_LIST, NO_PATH = "expected a list of files with digests", "an entry has no path"
NO_PARAMS = "'params' is not a mapping of parameter files"


@pytest.mark.parametrize(
    ("recorded", "fault"),
    [
        ({"deps": {"a": 1}}, NO_LIST),
        ({"deps": ["a"]}, NO_LIST),
        ({"deps": [{"md5": MD5}]}, NO_PATH),
        ({"deps": [{"path": ["a"], "md5": MD5}]}, NO_PATH),
        ({"deps": [{"path": "a"}]}, "'a' has no md5"),
        ({"deps": [{"path": "a", "md5": 7}]}, "'a' has the md5 '7', which is not a digest"),
        (
            {"deps": [{"path": "a", "md5": "xx/etc/passwd"}]},
            "'a' has the md5 'xx/etc/passwd', which is not a digest",
        ),
        ({"deps": [{"path": "a", "md5": "0" * 99}]}, f"'a' has the md5 '{'0' * 40}', which is not a digest"),
        *(
            ({"params": params}, NO_PARAMS)
            for params in (["a"], {"params.yaml": 3}, {"params.yaml": ["train"]})
        ),
    ],
)
def test_an_entry_that_dvc_would_not_write_is_refused(recorded, fault):
    with refused(f"HEAD: dvc.lock: stage 'make': {fault}; restore the file with `git checkout dvc.lock`"):
        read_stages(["dvc.yaml"], {"dvc.lock": lock_of(**recorded)}.get, "HEAD: ")


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("dvc.lock", b"<<<<<<< HEAD\nstages: {}\n=======\n", "not valid YAML: "),
        ("dvc.lock", b"stages: &a {make: *a}", "not valid YAML: aliases are not allowed here"),
        ("dvc.lock", b"[]", "expected keys and values, found list"),
        ("dvc.lock", b"stages: 7", "'stages' is not a mapping of stages; fix the file"),
        ("dvc.lock", b"stages: {make: 7}", "'stages' is not a mapping of stages; fix the file"),
        ("dvc.lock", b"stages: {1: {}}", "'stages' is not a mapping of stages; fix the file"),
        ("dvc.lock", b"\xff", "not valid YAML: "),
        (
            "dvc.yaml",
            b"stages: {make: {outs: 7}}",
            "stage 'make': 'outs' is not a list of paths; fix the file",
        ),
        (
            "dvc.yaml",
            b"stages: {make: {metrics: [[a]]}}",
            "stage 'make': 'metrics' holds ['a'], which is not a path",
        ),
        (
            "dvc.yaml",
            b"stages: {make: {plots: [{1: {}}]}}",
            "stage 'make': 'plots' holds 1, which is not a path; fix",
        ),
    ],
)
def test_a_file_that_dvc_would_not_write_is_refused_in_one_line(file, content, fault):
    with refused(f"HEAD: {file}: {fault}") as caught:
        read_stages(["dvc.yaml"], {file: content}.get, "HEAD: ")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("entry", [{"etag": "x"}, {"checksum": "x"}, {"files": []}, {"ds": {}}])
def test_entries_with_another_kind_of_digest_are_left_out(entry):
    (stage,) = read_stages(["dvc.yaml"], {"dvc.lock": lock_of(deps=[{"path": "a"} | entry])}.get)
    assert stage.deps == {}


def test_paths_start_at_the_root_whatever_folder_a_stage_runs_in():
    deps = {"deps": [{"path": "e", "md5": MD5}, {"path": "/data/e", "md5": MD5}]}
    files = {
        "a/dvc.yaml": b"stages: {x: {wdir: ../b, outs: [c]}, y: {foreach: [1], do: {wdir: sub, outs: [d]}}, "
        b"z: {wdir: '${folder}'}}",
        "a/dvc.lock": json.dumps({"stages": dict.fromkeys(("x", "y@1", "z"), deps)}).encode(),
    }
    stages = {stage.address: stage for stage in read_stages(["a/dvc.yaml", "none/dvc.yaml"], files.get)}
    assert {address: list(stage.deps) for address, stage in stages.items()} == {
        "a/dvc.yaml:x": ["b/e", "/data/e"],
        "a/dvc.yaml:y": [],
        "a/dvc.yaml:z": ["a/e", "/data/e"],
        "a/dvc.yaml:y@1": ["a/sub/e", "/data/e"],
    }
    assert stages["a/dvc.yaml:x"].declared == {"b/c": True}


def test_what_a_stage_read_that_only_checks_made_nothing():
    recorded = {
        name: {
            "deps": [{"path": "code", "md5": MD5}],
            "params": {"params.yaml": {"train": {"margin": 0.2}}},
            "outs": [{"path": out, "md5": MD5}],
        }
        for name, out in (("check", "checked/parameters.txt"), ("train", "model"))
    }
    check, train = read_stages(["dvc.yaml"], {"dvc.lock": json.dumps({"stages": recorded}).encode()}.get)
    assert (check.deps, check.params, check.outs) == ({}, {}, {"checked/parameters.txt": MD5})
    assert (train.deps, train.params) == ({"code": MD5}, {"params.yaml": {"train": {"margin": 0.2}}})


def test_a_listing_has_the_files_of_a_folder(project):
    md5 = str(pipeline_outs()[STORE].md5)
    cached = cache_object(cache_folder(), md5)
    assert parse_listing(cached.read_bytes(), "listing") == {
        name: bytes_md5((STORE / name).read_bytes()) for name in ("below/é", "rows")
    }


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"{", "not a listing of a folder; run `dvc pull` to fetch it again"),
        (b"[" * 100_000, "not a listing of a folder; run `dvc pull` to fetch it again"),
        (b"{}", "expected a list of files with digests; run `dvc pull` to fetch it again"),
        (b"[{}]", "an entry has no relpath; run `dvc pull` to fetch it again"),
        (f'[{{"relpath": "../a", "md5": "{MD5}"}}]'.encode(), "'../a' leads out of the folder"),
        (f'[{{"relpath": "b/../../a", "md5": "{MD5}"}}]'.encode(), "'../a' leads out of the folder"),
        (f'[{{"relpath": "/etc/a", "md5": "{MD5}"}}]'.encode(), "'/etc/a' leads out of the folder"),
    ],
)
def test_a_listing_that_dvc_would_not_write_is_refused(content, fault):
    with refused(f"listing: {fault}"):
        parse_listing(content, "listing")


def test_a_damaged_dvc_file_is_refused(project):
    Path("mine.dvc").write_text("outs: [{md5: x}]")
    with refused("mine.dvc: an entry has no path; restore the file with `git checkout mine.dvc`"):
        added_out(Path("mine"))


def test_the_advice_about_a_shared_cache_deletes_no_object_of_others(project, tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared") / "cache"
    shutil.move(".dvc/cache", shared)
    Path(".dvc/cache").symlink_to(shared, target_is_directory=True)
    for each in objects():
        damage(each)
    damage(ONE)
    advice = repair_advice(ONE, pipeline_outs()[ONE])
    assert "other projects may use that cache, so ask its owner" in advice
    assert "`rm -rf one && dvc pull one`" in advice


def test_names_in_printed_commands_are_quoted():
    out = PipelineOut(Path("a; reboot"), "make; reboot", None, cached=True)
    assert repair_advice(out.path, out) == "remove it and run `dvc repro 'make; reboot'`"


def test_a_listing_with_another_md5_than_its_name_is_refused(tmp_path):
    md5 = f"{MD5}.dir"
    cache_object(tmp_path, md5).parent.mkdir()
    cache_object(tmp_path, md5).write_text('[{"md5": "' + "1" * 32 + '", "relpath": "manifest.json"}]')
    with refused("its content has another md5 than its name"):
        read_listing(tmp_path, md5)


def test_a_file_in_a_folder_output_is_known_by_the_listing_of_the_folder(project):
    rows = STORE / "rows"
    outs = pipeline_outs()
    assert out_of(rows, outs) == PipelineOut(rows, "make", content_md5(rows), cached=True)
    assert (out_of(STORE, outs), out_of(Path("source"), outs)) == (outs[STORE], None)
    assert out_of(STORE / "foreign", outs) == PipelineOut(STORE / "foreign", "make", None, cached=True)
    [make, *_] = recorded_stages()
    assert make.recorded_md5("store/rows") == content_md5(rows)
    written = {path: make.writes(path) for path in ("store/below/é", "source", "storeroom")}
    assert written == {"store/below/é": True, "source": False, "storeroom": False}
    cache_object(cache_folder(), make.outs["store"]).unlink()
    [make, *_] = recorded_stages()
    assert (make.recorded_md5("store/rows"), make.recorded_md5("store")) == (None, make.outs["store"])
