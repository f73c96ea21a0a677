import hashlib
import json
import re
import shutil

import pytest

from fne.core.dvc import Stage, bytes_md5, cache_object
from fne.core.errors import InputError
from fne.experiments import runs
from fne.experiments.effective_settings import SECTIONS
from fne.experiments.runs import (
    RANKS,
    WORKSPACE,
    Result,
    _validation,
    is_tuned,
    open_runs,
    parse_results,
    parse_started,
    recorded,
    split_digests,
)
from fne.store.catalog import Captioned
from fne.store.checksums import seal_metrics
from tests.faults.edits import flip
from tests.support.paper_tables import FLICKR8K, project, run
from tests.support.projects import change_params, commit, dvc, git

DIRECTION = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0, "median_rank": 4.0, "mean_rank": 5.0}
RESULTS = {
    "image_to_text": DIRECTION,
    "text_to_image": DIRECTION,
    "rsum": 12.0,
    "chance": 9.5,
    "images": 10,
    "captions": 50,
}
FINETUNING = """
stages:
  finetune:
    wdir: ../..
    cmd: cp metrics/ranks.h5 tuned && python finetuning.py
    params:
      - pipelines/finetuning/params.yaml: [finetune]
    deps: [metrics/ranks.h5]
    outs:
      - tuned
      - metrics/finetuning_settings.json:
          cache: false
  evaluate_tuned:
    wdir: ../..
    cmd: cp tuned metrics/tuned_ranks.h5 && cp metrics/retrieval.json metrics/tuned.json
    params: [evaluate]
    deps: [tuned, metrics/retrieval.json]
    outs: [metrics/tuned_ranks.h5]
    metrics:
      - metrics/tuned.json:
          cache: false
"""
SETTINGS_OF_TUNING = """
from pathlib import Path
from fne.core.settings import load_section
from fne.experiments.effective_settings import PIPELINES, settings_file, write_settings

file = Path("params.yaml")
sections = {name: load_section(file, name, schema) for name, schema in PIPELINES["finetuning"].items()}
write_settings(Path(settings_file("finetuning")), file, "finetuning", sections, Path(".fne"))
"""

TAGGING = """
stages:
  {section}:
    wdir: ../..
    cmd: python describing.py {pipeline} {tuned}
    params:
      - pipelines/{pipeline}/params.yaml: [{section}]
    deps: [{read}]
    outs:
      - {tuned}tags.jsonl
      - annotations/{tuned}tags.jsonl
      - metrics/{pipeline}_settings.json:
          cache: false
    metrics:
      - metrics/{tuned}tags.json:
          cache: false
"""
DESCRIBING = """
import sys
from pathlib import Path
from fne.core.settings import load_section
from fne.experiments.effective_settings import PIPELINES, settings_file, write_settings
from fne.store.checksums import write_metrics

pipeline, tuned = sys.argv[1], "".join(sys.argv[2:])
file = Path("pipelines", pipeline, "params.yaml")
sections = {name: load_section(file, name, schema) for name, schema in PIPELINES[pipeline].items()}
write_settings(Path(settings_file(pipeline)), file, pipeline, sections, Path(".fne"))
for path in (Path(f"{tuned}tags.jsonl"), Path(f"annotations/{tuned}tags.jsonl")):
    path.parent.mkdir(exist_ok=True)
    path.write_text(file.read_text())
write_metrics(Path(f"metrics/{tuned}tags.json"), {"test": {"path": {"class_f1": 1.0}}})
"""


def file(**results) -> bytes:
    return seal_metrics(results).encode()


def test_split_and_protocol_are_parsed_from_the_name():
    numbers = (1.0, 2.0, 3.0, 4.0) * 2
    assert parse_results(file(test_full=RESULTS)) == [Result("test", "full", numbers, 10, 50, 9.5)]
    assert parse_results(file(val_coco_1k_first=RESULTS))[0].protocol == "coco_1k_first"


def test_results_without_a_protocol_are_ignored():
    assert parse_results(file(test=RESULTS)) == []


def test_a_recall_that_was_not_computed_is_none():
    fewer = {key: value for key, value in DIRECTION.items() if key != "R@5"}
    assert parse_results(file(test_full=RESULTS | {"text_to_image": fewer}))[0].numbers[5] is None


@pytest.mark.parametrize(
    ("recorded", "expected"), [({"started": 1}, True), ({"started": False}, False), ({}, None)]
)
def test_it_is_parsed_whether_training_started(recorded, expected):
    assert parse_started(file(test_full=RESULTS | recorded)) is expected


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return a project with a run in the work tree, an experiment with another seed, and a queued one."""
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
    with open_runs(folder) as found:
        return [each.name for each in found.runs()]


def test_runs_of_the_work_tree_and_of_experiments_are_found_with_their_records(original):
    with open_runs(original) as found:
        first, second = found.runs()
    assert (first.name, first.seed, first.started) == (WORKSPACE, 0, True)
    assert (second.name, second.seed, second.started) == ("second", 1, False)
    assert first.experiment == second.experiment
    assert first.counts == {"train": (12, 60), "val": (4, 20), "test": (6, 30)}
    assert first.settings["train"]["embed_dim"] == 256
    assert first.ranks is not None
    assert first.ranks["image_ranks"].tolist() != second.ranks["image_ranks"].tolist()


def test_queued_experiments_are_found_with_their_parameters(original):
    with open_runs(original) as found:
        assert [settings["train"]["seed"] for settings in found.queued()] == [2]


def test_a_queued_experiment_with_wrong_parameters_is_left_out_with_one_line(original, monkeypatch, capsys):
    def reader(self, name):
        return lambda path: b"train: {margn: 1}"

    with open_runs(original) as found:
        monkeypatch.setattr(type(found), "_file_reader", reader)
        assert found.queued() == []
    assert re.fullmatch(
        r"left out: params.yaml of the queued experiment [0-9a-f]{7}: section 'train': unknown key 'margn' "
        r"\(did you mean 'margin'\?\); run `fne check`\n",
        capsys.readouterr().err,
    )


LEFT_OUT = "workspace is left out: its metrics/settings.json is not what dvc.lock records; run `dvc repro`\n"


def lock_settings(folder, change):
    """Change the settings of the work tree, and record them in the lock as the stage does."""
    path = folder / "metrics/settings.json"
    before = path.read_bytes()
    path.write_bytes(change(before))
    lock = folder / "dvc.lock"
    old, new = bytes_md5(before), bytes_md5(path.read_bytes())
    text = lock.read_text().replace(
        f"{old}\n      size: {len(before)}", f"{new}\n      size: {path.stat().st_size}"
    )
    assert text != lock.read_text()
    lock.write_text(text)


def test_a_run_with_the_settings_of_other_parameters_is_left_out_with_one_line(folder, capsys):
    settings = folder / "metrics/settings.json"
    settings.write_bytes(settings.read_bytes().replace(b'"train.margin": [', b'"train.margin": [\n'))
    assert names(folder) == ["second"]
    assert capsys.readouterr().err == LEFT_OUT
    settings.unlink()
    assert names(folder) == ["second"]
    assert capsys.readouterr().err == LEFT_OUT


def test_a_run_whose_recorded_settings_disagree_with_the_lock_is_left_out_with_one_line(folder, capsys):
    def other_margin(content):
        values = json.loads(content)
        values["params.yaml"]["train.margin"] = [0.3]
        return seal_metrics({name: each for name, each in values.items() if isinstance(each, dict)}).encode()

    lock_settings(folder, other_margin)
    assert names(folder) == ["second"]
    assert capsys.readouterr().err == (
        "workspace is left out: it was made with train.margin = 0.2, but its settings have [0.3]; "
        "run `dvc repro`\n"
    )


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-20], lambda content: b"[]", lambda content: b""]
)
def test_a_run_with_damaged_settings_is_left_out_with_one_line(folder, capsys, damage):
    lock_settings(folder, damage)
    assert names(folder) == ["second"]
    said = capsys.readouterr().err
    assert said.startswith("workspace is left out: metrics/settings.json: damaged (")
    assert said.endswith("; run `dvc repro --force check`\n")
    assert said.count("\n") == 1


def test_defaults_of_a_run_are_those_of_its_code_and_not_those_of_today(folder, monkeypatch):
    def today(*arguments):
        raise AssertionError("the defaults of today are not settings of a run")

    for schema in SECTIONS.values():
        monkeypatch.setattr(schema, "model_validate", today)
    monkeypatch.setattr(runs, "settings_of", today)
    with open_runs(folder) as found:
        for name in (WORKSPACE, "second"):
            assert found.run(name).settings["train"]["clip"] == 2.0


def test_settings_are_those_of_the_run_even_if_params_yaml_was_edited_later(folder):
    change_params(folder, {"train": {"margin": 9.0}})
    with open_runs(folder) as found:
        assert found.run(WORKSPACE).settings["train"]["margin"] == [0.2]


def test_a_tuned_model_is_a_run_of_its_own_until_the_model_before_it_is_another(folder):
    (folder / "pipelines/finetuning").mkdir(parents=True)
    (folder / "pipelines/finetuning/dvc.yaml").write_text(FINETUNING)
    (folder / "pipelines/finetuning/params.yaml").write_text("finetune: {epochs: 2}\n")
    (folder / "finetuning.py").write_text(SETTINGS_OF_TUNING)
    dvc(folder, "repro", "--quiet", "pipelines/finetuning/dvc.yaml")
    assert names(folder) == ["workspace", "workspace:tuned", "second"]
    with open_runs(folder) as found:
        before, tuned = found.run(WORKSPACE), found.run("workspace:tuned")
    assert (is_tuned(before.settings), is_tuned(tuned.settings)) == (False, True)
    assert before.experiment != tuned.experiment
    assert before.settings["train"] == tuned.settings["train"] != {}
    assert tuned.ranks is not None
    change_params(folder, {"train": {"seed": 5}})
    dvc(folder, "repro", "--quiet")
    assert names(folder) == ["workspace", "second"]
    with open_runs(folder) as found, pytest.raises(InputError) as caught:
        found.run("workspace:tuned")
    assert caught.value.message == (
        "'workspace:tuned' has no finished run (metrics/tuned.json and dvc.lock); available: workspace, second"
    )


def test_a_tuned_tagger_is_a_run_until_the_tagger_before_it_is_another(folder):
    (folder / "describing.py").write_text(DESCRIBING)
    for pipeline, keys in (
        ("tagging", "train_tagger: {units: 8}"),
        ("tuned_tagging", "tune_tagger: {epochs: 2}"),
    ):
        place = folder / "pipelines" / pipeline
        place.mkdir(parents=True)
        (place / "params.yaml").write_text(f"{keys}\n")
        tuned = "" if pipeline == "tagging" else "tuned_"
        read = "tags.jsonl" if tuned else "data/captions.jsonl"
        text = TAGGING.format(pipeline=pipeline, tuned=tuned, read=read, section=keys.partition(":")[0])
        (place / "dvc.yaml").write_text(text)
    dvc(folder, "repro", "--quiet", "pipelines/tuned_tagging/dvc.yaml")

    def described():
        with open_runs(folder) as found:
            return list(found.described_runs("metrics/tags.json", "train_tagger"))

    before, tuned = described()
    assert (before.name, tuned.name) == ("workspace", "workspace:tuned")
    assert before.settings["train_tagger"] == tuned.settings["train_tagger"]
    assert (before.tuning, tuned.tuning["epochs"]) == ({}, [2])
    assert before.experiment != tuned.experiment
    with open_runs(folder) as found:
        matching, of_tuned = found.run(WORKSPACE), found.run("workspace:tuned")
        assert (of_tuned.name, of_tuned.experiment) == ("workspace:tuned", matching.experiment)
        assert found.file(of_tuned, "annotations/tuned_tags.jsonl") is not None
    assert names(folder) == ["workspace", "second"]
    (folder / "pipelines/tagging/params.yaml").write_text("train_tagger: {units: 9}\n")
    dvc(folder, "repro", "--quiet", "pipelines/tagging/dvc.yaml")
    assert [each.name for each in described()] == ["workspace"]
    with open_runs(folder) as found, pytest.raises(InputError, match="'workspace:tuned' has no finished run"):
        found.run("workspace:tuned")


def test_metrics_that_differ_from_the_lock_are_ignored(folder):
    metrics = folder / "metrics/retrieval.json"
    metrics.write_text(json.dumps(json.loads(metrics.read_text()), indent=1))
    assert names(folder) == ["second"]


def test_metrics_with_another_layout_are_ignored(folder):
    (folder / "stage.py").write_text(
        (folder / "stage.py").read_text().replace('"captions": 5', '"sentences": 5')
    )
    run(folder)
    assert names(folder) == ["second"]


def test_experiments_with_the_same_name_are_distinguished_by_their_baseline(folder):
    references = git(folder, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    [reference] = [each for each in references if each.endswith("/second")]
    commit_id, baseline = git(folder, "rev-parse", reference).strip(), "".join(reference.split("/")[2:4])
    git(folder, "update-ref", f"refs/exps/{commit_id[:2]}/{commit_id[2:]}/second", commit_id)
    expected = {f"second@{start[:7]}" for start in (baseline, commit_id)}
    with open_runs(folder) as found:
        assert {each.name for each in found.runs()} == {WORKSPACE, *expected}
        assert found.run(f"second@{baseline[:7]}").seed == 1


def test_counts_are_unknown_if_the_catalog_cannot_be_read(folder):
    for cached in (folder / ".dvc/cache").rglob("*"):
        if cached.is_file() and cached.read_bytes().startswith(b"{") and b'"split"' in cached.read_bytes():
            cached.chmod(0o644)
            cached.write_text("no catalog\n")
    with open_runs(folder) as found:
        assert found.run("second").counts is None


def test_without_git_there_is_only_the_work_tree(folder):
    shutil.rmtree(folder / ".git")
    with pytest.raises(InputError) as caught, open_runs(folder):
        pass
    assert caught.value.message == (
        f"{folder}: not in a Git repository; run `git init`, or `dvc config core.no_scm true`"
    )
    dvc(folder, "config", "core.no_scm", "true")
    assert names(folder) == [WORKSPACE]
    with open_runs(folder) as found:
        assert found.queued() == []
        with pytest.raises(InputError, match="no experiment or revision 'HEAD'; available: workspace$"):
            found.run("HEAD")


def test_a_new_project_has_no_runs(tmp_path):
    git(tmp_path, "init", "--quiet")
    dvc(tmp_path, "init", "--quiet")
    assert names(tmp_path) == []
    with open_runs(tmp_path) as found:
        assert found.queued() == []
        with pytest.raises(InputError, match="'workspace' has no finished run .*; available: none$"):
            found.run(WORKSPACE)


def test_without_the_cache_an_experiment_is_found_without_its_ranks(folder):
    shutil.rmtree(folder / ".dvc/cache")
    with open_runs(folder) as found:
        local, remote = found.runs()
    assert local.ranks is not None  # the work tree has a copy
    assert remote.ranks is None
    assert remote.counts == local.counts  # the same catalog, which is in the work tree
    assert remote.results[0].images == 6


def test_damaged_ranks_are_reported_when_they_are_left_out(folder, capsys):
    with open_runs(folder) as found:
        cached = found.file(found.run("second"), RANKS)
        cached.chmod(0o644)
        flip(cached, 0.5)
        capsys.readouterr()
        assert found.run("second").ranks is None
    assert capsys.readouterr().err.startswith(f"{RANKS} of a run is left out: {cached}: ")


def test_a_revision_is_a_run_and_another_catalog_makes_another_experiment(folder):
    (folder / "facts.json").write_text(FLICKR8K)
    run(folder, "train.seed=7")
    with open_runs(folder) as found:
        before, after = found.run("HEAD~1"), found.run("HEAD")
    assert (before.seed, after.seed) == (0, 7)
    assert after.counts["train"] == (6000, 30000)
    assert before.experiment != after.experiment


def test_a_missing_run_is_an_error_that_lists_the_available_ones(folder):
    with open_runs(folder) as found, pytest.raises(InputError) as caught:
        found.run("third")
    assert caught.value.message == "there is no experiment or revision 'third'; available: workspace, second"
    git(folder, "rm", "--quiet", "dvc.lock")
    commit(folder)
    with open_runs(folder) as found, pytest.raises(InputError) as caught:
        found.run("HEAD")
    assert caught.value.message == (
        "'HEAD' has no finished run (metrics/retrieval.json and dvc.lock); available: second"
    )


def test_a_folder_outside_of_a_project_is_an_error(tmp_path):
    with pytest.raises(InputError) as caught, open_runs(tmp_path):
        pass
    assert caught.value.message == f"{tmp_path}: not a DVC project; run this in the project's folder"


def test_parameters_come_by_section_and_hashes_by_path():
    stages = [
        Stage(
            "standardize",
            deps={"features/activations": "a1.dir", "weights.yaml": "b2"},
            params={"params.yaml": {"evaluate.split": "val"}},
        ),
        Stage(
            "train",
            outs={"model": "c3"},
            params={
                "params.yaml": {"report": {"seed": 3, "examples": 5}},
                "other.yaml": {"report": {"seed": 4}},
            },
        ),
    ]
    assert recorded(stages) == (
        {
            "evaluate": {"split": "val"},
            "report": {"seed": 3, "examples": 5},
        },
        {"features/activations": "a1.dir", "weights.yaml": "b2", "model": "c3"},
    )


def test_no_stages_record_nothing():
    assert recorded([]) == ({}, {})


def test_the_pipeline_of_the_root_counts_where_another_one_disagrees():
    stages = [
        Stage("train", outs={"model": "1"}, params={"params.yaml": {"report": {"seed": 1}}}),
        Stage(
            "b/dvc.yaml:train", outs={"model": "2"}, params={"params.yaml": {"report": {"seed": 2, "k": 3}}}
        ),
    ]
    assert recorded(stages) == ({"report": {"seed": 1, "k": 3}}, {"model": "1"})


def test_a_stage_behind_the_target_of_a_run_does_not_count():
    """`dvc exp run evaluate` leaves what the lock has of the later stages, which is of an earlier run."""
    stages = [
        Stage("evaluate", outs={"metrics": "new"}, params={"params.yaml": {"evaluate": {"split": "test"}}}),
        Stage(
            "report",
            {},
            deps={"metrics": "old"},
            outs={"page": "old"},
            params={"params.yaml": {"report": {"seed": 1}}},
        ),
    ]
    for order in (stages, stages[::-1]):
        assert recorded(order) == ({"evaluate": {"split": "test"}}, {"metrics": "new"})


def test_a_stage_that_read_another_file_of_a_folder_output_does_not_count(tmp_path):
    """The lock file names the folder where it is written, and the file where it is read."""
    listing = json.dumps([{"md5": "b" * 32, "relpath": "model"}]).encode()
    written = f"{bytes_md5(listing)}.dir"
    cached = cache_object(tmp_path, written)
    cached.parent.mkdir()
    cached.write_bytes(listing)
    stages = [
        Stage("train", outs={"models": written}),
        Stage("encode", deps={"models/model": "a" * 32}, outs={"vectors": "old"}),
    ]
    assert recorded(stages, "params.yaml", tmp_path)[1] == {"models": written}
    stages[1].deps["models/model"] = "b" * 32
    assert recorded(stages, "params.yaml", tmp_path)[1].keys() == {"models", "models/model", "vectors"}
    cached.unlink()
    assert "vectors" in recorded(stages, "params.yaml", tmp_path)[1], "without the listing it is unknown"


def test_a_section_is_taken_from_the_stage_of_its_name():
    stages = [
        Stage("evaluate", params={"params.yaml": {"evaluate": {"split": "test", "top": 3}}}),
        Stage("baseline", params={"params.yaml": {"evaluate": {"split": "val", "top": 3}}}),
    ]
    for order in (stages, stages[::-1]):
        assert recorded(order)[0] == {"evaluate": {"split": "test", "top": 3}}
        assert recorded(order, last="baseline")[0] == {"evaluate": {"split": "val", "top": 3}}


def test_a_section_that_is_a_single_value_is_left_out():
    assert recorded([Stage("train", params={"params.yaml": {"train": 3}})]) == ({"train": {}}, {})


def test_a_lock_with_conflicts_is_refused_in_one_line(folder):
    (folder / "dvc.lock").write_text("<<<<<<< HEAD\nstages: {}\n=======\n")
    with open_runs(folder) as found, pytest.raises(InputError) as caught:
        found.run(WORKSPACE)
    assert caught.value.message.startswith("workspace: dvc.lock: not valid YAML: ")
    assert "\n" not in caught.value.message


def test_a_split_is_known_by_the_names_of_its_images():
    names = {
        "a": ["Images/1000_4ebe0f40b3.jpg", "200_9a8b.jpg"],
        "b": ["COCO_val2014_000000000042.jpg", "x.png"],
    }
    records = [Captioned(each, split, ("x",), ()) for split, own in names.items() for each in own]
    expected = {"a": "1000\n200", "b": "COCO_val2014_000000000042\nx"}
    digests = {split: hashlib.sha256(text.encode()).hexdigest() for split, text in expected.items()}
    assert split_digests(records) == split_digests(records[::-1]) == digests


def test_the_validation_of_a_fine_tuned_run_is_that_of_its_tuned_model():
    files = {
        "metrics/training.json": file(validation={"rsum": 300.0}),
        "metrics/tuning.json": file(validation={"rsum": 320.0}),
    }
    hashes = {path: bytes_md5(content) for path, content in files.items()}
    assert _validation(files.get, {}, hashes) == 300.0
    assert _validation(files.get, {"finetune": {"epochs": [2, 1]}}, hashes) == 320.0
    # Without a record of its own, a fine-tuned run has none: that of the model before it is another one's.
    assert (
        _validation(files.get, {"finetune": {"epochs": 2}}, hashes | {"metrics/tuning.json": "other"}) is None
    )
