import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import precision_recall_fscore_support

from fne.cli import main as fne
from fne.describing.annotations import read_tagged
from fne.store.catalog import write_captions
from fne.store.checksums import parse_metrics
from stages.tag import main
from stages.train_tagger import main as train
from tests.support.projects import change_params
from tests.support.stages import COMMANDS
from tests.support.tagging import CAPTIONS, scenes, write_project

TAGS, METRICS, PAGE = Path("annotations/tags.jsonl"), Path("metrics/tags.json"), Path("report/tags.html")
WORLD = scenes(60)


def invoke(command, name):
    return CliRunner().invoke(command, COMMANDS[name].split())


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder in which a tagger was trained."""
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, WORLD)
    result = invoke(train, "train_tagger")
    assert result.exit_code == 0, result.output
    return tmp_path


def metrics():
    return json.loads(METRICS.read_text())["test_full"]


def test_the_metrics_are_those_of_scikit_learn_for_the_tags_that_were_written(project):
    result = invoke(main, "tag")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("test_full: 12 images, mAP ")
    found = read_tagged(TAGS)
    truth = {record.id: set(record.tags) for record in WORLD if record.split == "test"}
    assert [image.id for image in found.images] == sorted(truth)
    names = sorted({*found.concepts, *(tag for own in truth.values() for tag in own)})
    true = np.array([[name in truth[image.id] for name in names] for image in found.images])
    for answer, kind in (("path", "tags"), ("top_3", "top")):
        predicted = np.array([[name in getattr(image, kind) for name in names] for image in found.images])
        for average, name in (("macro", "class"), ("samples", "image"), ("micro", "pooled")):
            expected = precision_recall_fscore_support(true, predicted, average=average, zero_division=0)
            assert metrics()[answer][f"{name}_precision"] == pytest.approx(100 * expected[0])
            assert metrics()[answer][f"{name}_recall"] == pytest.approx(100 * expected[1])
    probabilities = np.array([image.probabilities for image in found.images])
    assert metrics()["above_0.5"]["predicted_length"] == pytest.approx(
        (probabilities > 0.5).sum(axis=1).mean(), abs=0.2
    )
    bounds = json.loads(Path("metrics/tag_intervals.json").read_text())["test_full"]
    low, high = bounds["path"]["image_f1"]
    assert low <= metrics()["path"]["image_f1"] <= high
    assert bounds["mAP"][0] <= metrics()["mAP"] <= bounds["mAP"][1]
    assert found.artifact.lineage.keys() == {"captions", "embeddings", "tagger", "train_images"}


def test_no_tag_is_written_twice(project):
    invoke(main, "tag")
    for image in read_tagged(TAGS).images:
        assert len(set(image.tags)) == len(image.tags)


def test_two_runs_give_the_same_bytes(project):
    paths = [TAGS, METRICS, PAGE, Path("metrics/tag_intervals.json")]
    invoke(main, "tag")
    first = [path.read_bytes() for path in paths]
    assert invoke(main, "tag").exit_code == 0
    assert [path.read_bytes() for path in paths] == first


def test_images_are_not_tagged_again_for_another_page(project, monkeypatch):
    invoke(main, "tag")
    first = TAGS.read_bytes().partition(b"\n")[2]
    change_params(project, {"tag": {"examples": 2}})
    monkeypatch.delattr("fne.describing.write.search")
    result = invoke(main, "tag")
    assert result.exit_code == 0, result.output
    assert TAGS.read_bytes().partition(b"\n")[2] == first


def test_a_split_without_tags_names_one_that_has_some(project):
    records = [replace(record, tags=()) if record.split == "test" else record for record in WORLD]
    write_captions(CAPTIONS, records)
    invoke(train, "train_tagger")
    result = invoke(main, "tag")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: tag.split is 'test', but no image of it has tags to compare with; "
        "use `-S pipelines/tagging/params.yaml:tag.split=val`\n",
    )
    change_params(project, {"tag": {"split": "val"}})
    assert invoke(main, "tag").exit_code == 0
    assert parse_metrics(METRICS.read_bytes()).keys() == {"val_full"}


def test_tags_that_no_training_image_has_count_against_recall(project):
    records = [
        replace(record, tags=(*record.tags, "unseen")) if record.split == "test" else record
        for record in WORLD
    ]
    write_captions(CAPTIONS, records)
    invoke(train, "train_tagger")
    assert invoke(main, "tag").exit_code == 0
    assert (metrics()["unlearned_tags"], metrics()["unlearned_occurrences"]) == (1, 12)
    assert metrics()["path"]["image_recall"] < 100
    assert "Tags that cannot be predicted" in PAGE.read_text()


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({"learns": "concept_head"}, ["top_3", "above_0.5"]),
        ({"learns": "concept_head", "concept_loss": "warp"}, ["top_3"]),
        ({"learns": "jointly", "condition": "embedding", "concept_loss": "none"}, ["path"]),
        ({"user_tags": "user"}, ["path", "top_3", "above_0.5"]),
    ],
)
def test_a_tagger_answers_in_as_many_ways_as_it_has_parts(project, changes, answers):
    change_params(project, {"train_tagger": changes})
    assert invoke(train, "train_tagger").exit_code == 0
    result = invoke(main, "tag")
    assert result.exit_code == 0, result.output
    found = metrics()
    assert [name for name, value in found.items() if isinstance(value, dict)] == answers
    assert ("mAP" in found) == ("top_3" in answers)
    assert PAGE.read_text().endswith("</html>")
    assert CliRunner().invoke(fne, ["verify", str(TAGS), "models/tagger.safetensors"]).exit_code == 0


def test_a_tagger_that_was_trained_on_other_images_is_refused(project):
    first = next(record for record in WORLD if record.split == "train")
    moved = [replace(record, split="test") if record is first else record for record in WORLD]
    write_captions(CAPTIONS, moved)
    result = invoke(main, "tag")
    assert result.exit_code == 2
    assert "was made from captions" in result.stderr


def test_inspect_and_verify_know_the_artifacts(project):
    invoke(main, "tag")

    def lines(*words):
        result = CliRunner().invoke(fne, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    found = lines("inspect", "models/tagger.safetensors", str(TAGS), str(METRICS), str(PAGE))
    assert "models/tagger.safetensors: tagger, " in found
    assert "22 concepts" in found
    assert f"{TAGS}: " in found
    assert "metrics/tags.json: test_full, 12 images, 22 concepts, mAP " in found
    assert "  path  " in found
    assert "  made with" in found
    assert "no faults" in lines("verify", "models/tagger.safetensors", str(TAGS), str(METRICS))
    content = bytearray(TAGS.read_bytes())
    content[-20] ^= 1
    TAGS.write_bytes(content)
    damaged = CliRunner().invoke(fne, ["verify", str(TAGS)])
    assert damaged.exit_code == 2
    assert "not a file of tags (its content does not match its seal)" in damaged.stderr
