"""The whole pipeline in copies of this project, as users run it."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support.imports import ROOT
from tests.support.projects import change_params, commit, dvc, fails, git, small_project, stages_run

STAGES = list(YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"])
STAGES.insert(1, "render")  # after `check`
AFTER_TRAIN = ["train", "encode", "evaluate", "report"]
AFTER_EMBED = ["train", "encode", "evaluate", "baseline", "report"]
FINETUNING = "pipelines/finetuning/params.yaml"
MADE = ["data", "features", "captions", "models", "vectors", "metrics", "report"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A small project in which everything has been run once."""
    folder = small_project(tmp_path_factory.mktemp("project"))
    output = dvc(folder, "repro")
    assert stages_run(output) == STAGES
    commit(folder)
    return folder


@pytest.fixture
def project(finished) -> Iterator[Path]:
    """The finished project, put back as it was after the test."""
    yield finished
    git(finished, "checkout", "--quiet", "--force", "main")
    git(finished, "reset", "--quiet", "--hard")
    dvc(finished, "checkout", "--quiet", "--force", "--allow-missing")


def digests(folder: Path) -> dict[str, str]:
    files = [path for name in MADE for path in sorted((folder / name).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_running_again_does_nothing(project):
    output = dvc(project, "repro")
    assert stages_run(output) == []
    assert "Data and pipelines are up to date." in output


def test_the_demo_ends_clearly_above_chance_in_both_directions(project):
    metrics = json.loads((project / "metrics/retrieval.json").read_text())["test_full"]
    assert (metrics["images"], metrics["captions"]) == (24, 120)
    # By chance, ten of 24 images hold the right one in 42 %, and ten of 120 sentences one of five in 36 %.
    assert metrics["text_to_image"]["R@10"] > 60
    assert metrics["image_to_text"]["R@10"] > 55


def test_the_report_says_that_the_weights_are_untrained(project):
    assert "Untrained weights" in (project / "report/index.html").read_text(encoding="utf-8")


def test_equal_inputs_give_equal_bytes(project, tmp_path):
    again = small_project(tmp_path)
    dvc(again, "repro")
    assert digests(again) == digests(project)


def test_a_training_key_runs_training_and_what_follows_it(project):
    output = dvc(project, "exp", "run", "--name", "narrow", "-S", "train.margin=0.1")
    # The baseline depends on features and captions alone.
    assert stages_run(output) == ["check", *AFTER_TRAIN]
    table = dvc(project, "exp", "show", "--only-changed", "--csv")
    assert "narrow" in table
    assert "train.margin" in table
    assert "rsum" in dvc(project, "metrics", "diff", "HEAD", "narrow")


def test_a_refused_value_costs_no_result(project):
    before = digests(project)
    status = dvc(project, "status")
    output = fails(project, "exp", "run", "-S", "train.loss=triplet")
    assert stages_run(output) == ["check"]
    assert "'triplet' is not one of" in output
    assert "`git checkout params.yaml`" in output
    assert digests(project) == before
    git(project, "checkout", "params.yaml")
    assert dvc(project, "status") == status
    assert git(project, "status", "--short") == ""


def test_a_missing_data_set_is_refused_with_what_to_use(project):
    output = fails(project, "exp", "run", "-S", "catalog.root=NOWHERE")
    assert "root: no such folder or file 'NOWHERE'; use the folder of your data set" in output


def test_a_key_of_the_evaluation_runs_the_check_and_the_evaluation(project):
    output = dvc(project, "exp", "run", "-S", "evaluate.top=5")
    assert stages_run(output) == ["check", "evaluate", "baseline", "report"]


def test_photographs_without_captions_are_refused_before_the_extraction_but_can_be_embedded(
    project, tmp_path
):
    photos = shutil.copytree(project / "data/demo/images", tmp_path / "photos")
    change_params(project, {"catalog": {"root": str(photos)}})
    output = fails(project, "repro")
    assert stages_run(output) == ["check", "catalog", "check_splits"]
    assert "or run `dvc exp run -S ++catalog.captions=optional embed` for embeddings" in output
    change_params(project, {"catalog": {"captions": "optional"}})
    assert "embed" in stages_run(dvc(project, "repro", "embed"))


def test_a_setting_of_the_fine_tuning_runs_nothing_of_the_default_pipeline(project):
    assert stages_run(dvc(project, "exp", "run", "-S", f"{FINETUNING}:++finetune.margin=0.25")) == []


def test_the_default_pipeline_has_no_trace_of_the_fine_tuning():
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    named = {name: str(stage) for name, stage in stages.items() if name != "check"}
    assert not [name for name, text in named.items() if "tun" in text.replace("fne/finetuning", "")]
    assert "finetune" not in stages["check"]["params"]


def test_another_kind_of_embedding_touches_neither_extraction_nor_statistics(project):
    output = dvc(project, "exp", "run", "-S", "embed.kind=layer", "-S", "embed.layer=fc7")
    assert sorted(stages_run(output)) == sorted(["check", "embed", *AFTER_EMBED])


def test_another_threshold_touches_neither_extraction_nor_statistics(project):
    change_params(project, {"embed": {"low": -0.5}})
    assert stages_run(dvc(project, "repro", "embed")) == ["check", "embed"]


def test_a_speed_setting_runs_nothing(project):
    change_params(project, {"runtime": {"workers": 1}})
    assert stages_run(dvc(project, "repro")) == []


def test_an_edited_comment_computes_no_image_even_without_the_scratch_folder(project):
    shutil.rmtree(project / ".fne")
    with (project / "fne/extraction/preprocess.py").open("a") as file:
        file.write("# A comment.\n")
    output = dvc(project, "repro", "extract")
    assert stages_run(output) == ["check", "extract"]
    assert "to do" not in output


def test_only_new_images_are_computed(project):
    change_params(project, {"render": {"images": 83}})
    output = dvc(project, "repro", "extract")
    assert stages_run(output) == ["check", "render", "catalog", "check_splits", "extract"]
    assert "83 images: 80 done, 3 to do" in output


def user_data_set(project: Path, folder: Path) -> Path:
    """A data set outside the repository, as a user has it."""
    return Path(shutil.copytree(project / "data/demo", folder / "mine"))


def test_a_corrected_caption_does_not_touch_extraction(project, tmp_path):
    mine = user_data_set(project, tmp_path)
    clone = Path(shutil.copytree(project, tmp_path / "clone", symlinks=True))
    change_params(clone, {"catalog": {"root": str(mine)}})
    # The same files elsewhere: the catalog is made anew, it is the same, and only the check of its splits
    # and the page, which names the data set, follow.
    assert stages_run(dvc(clone, "repro")) == ["check", "catalog", "check_splits", "report"]
    dataset = json.loads((mine / "dataset.json").read_text())
    dataset["images"][0]["sentences"][0]["raw"] = "A corrected caption."
    (mine / "dataset.json").write_text(json.dumps(dataset))
    after = ["check_splits", "standardize", "tokenize", *AFTER_EMBED]
    assert stages_run(dvc(clone, "repro")) == ["catalog", *after]


def test_a_queued_experiment_on_a_users_data_set_runs(project, tmp_path):
    mine = user_data_set(project, tmp_path)
    dvc(
        project,
        "exp",
        "run",
        "--queue",
        "--name",
        "queued",
        "-S",
        f"catalog.root={mine}",
        "-S",
        "train.epochs=1",
    )
    dvc(project, "queue", "start")
    dvc(project, "queue", "logs", "queued", "--follow")
    assert "Success" in dvc(project, "queue", "status")
    assert "queued" in dvc(project, "exp", "list")


def test_an_experiment_in_a_temporary_copy_shares_the_scratch_folder(project):
    changes = ["-S", "extract.crops=five", "-S", "train.epochs=1"]
    output = dvc(project, "exp", "run", "--temp", "--name", "aside", *changes)
    assert sorted(stages_run(output)) == sorted(["check", "extract", "standardize", "embed", *AFTER_EMBED])
    assert "aside" in dvc(project, "exp", "list")
    change_params(project, {"extract": {"crops": "five"}})
    assert "to do" not in dvc(project, "repro", "extract")


def test_tags_are_a_pipeline_of_their_own(project):
    after = ["write_tags", "score_tags", "tags_page"]

    def run():
        return stages_run(dvc(project, "repro", "pipelines/tagging/dvc.yaml"))

    assert run() == ["check", "check_tags", "train_tagger", *after]
    assert run() == []
    metrics = json.loads((project / "metrics/tags.json").read_text())["test_full"]
    # By chance, three of 22 tags are right in less than a quarter of the cases.
    assert metrics["top_3"]["image_precision"] > 35
    change_params(project, {"write_tags": {"top_k": 2}})
    assert run() == ["check", *after]
    change_params(project, {"score_tags": {"threshold": 0.25}})
    assert run() == ["check", "check_tags", *after[1:]]
    change_params(project, {"tags_page": {"examples": 2}})
    assert run() == ["check", "tags_page"]
    template = project / "fne/report/templates/tags.html"
    template.write_text(f"{template.read_text()} ")
    assert sorted(run()) == ["check", "check", "tags_page"]  # that of the root, too
    assert stages_run(dvc(project, "repro")) == ["report"]
    change_params(project, {"train_tagger": {"order": "frequent_first"}})
    assert stages_run(dvc(project, "repro")) == []
    assert run() == ["check", "check_tags", "train_tagger", *after]
