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
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal
from tests.support.tagging import CAPTIONS, scenes

TAGS, METRICS = Path("annotations/tags.jsonl"), Path("metrics/tags.json")
INTERVALS, PAGE = Path("metrics/tag_intervals.json"), Path("report/tags.html")
WORLD = scenes(60)

pytestmark = pytest.mark.usefixtures("scored_tags")


def score():
    return invoke("write_tags", "score_tags")


def metrics():
    return json.loads(METRICS.read_text())["test_full"]


def test_the_metrics_are_those_of_scikit_learn_for_the_tags_that_were_written():
    assert invoke("score_tags").stdout.startswith("test_full: 12 images, mAP ")
    found = read_tagged(TAGS)
    truth = {record.id: set(record.tags) for record in WORLD if record.split == "test"}
    assert [image.id for image in found.images] == sorted(truth)
    names = sorted({*found.concepts.names, *(tag for own in truth.values() for tag in own)})
    true = np.array([[name in truth[image.id] for name in names] for image in found.images])
    for answer, kind in (("path", "tags"), ("top_3", "top")):
        predicted = np.array([[name in getattr(image, kind) for name in names] for image in found.images])
        for average, name in (("macro", "class"), ("samples", "image"), ("micro", "pooled")):
            expected = precision_recall_fscore_support(true, predicted, average=average, zero_division=0)
            assert metrics()[answer][f"{name}_precision"] == pytest.approx(100 * expected[0])
            assert metrics()[answer][f"{name}_recall"] == pytest.approx(100 * expected[1])
    probabilities = np.array([image.probabilities for image in found.images])
    length = (probabilities > 0.5).sum(axis=1).mean()
    assert metrics()["above_0.5"]["predicted_length"] == pytest.approx(length)
    bounds = json.loads(INTERVALS.read_text())["test_full"]
    low, high = bounds["path"]["image_f1"]
    assert low <= metrics()["path"]["image_f1"] <= high
    assert bounds["mAP"][0] <= metrics()["mAP"] <= bounds["mAP"][1]


def test_the_scores_do_not_depend_on_the_other_images_that_were_tagged():
    first = [path.read_bytes() for path in (METRICS, INTERVALS)]
    assert invoke("score_tags").exit_code == 0
    assert [path.read_bytes() for path in (METRICS, INTERVALS)] == first
    before = metrics(), json.loads(INTERVALS.read_text())["test_full"]
    change_params(Path(), {"write_tags": {"images": "all"}})
    score()
    assert (metrics(), json.loads(INTERVALS.read_text())["test_full"]) == before


def test_a_split_without_tags_names_one_that_has_some():
    records = [replace(record, tags=()) if record.split == "test" else record for record in WORLD]
    write_captions(CAPTIONS, records)
    found = refusal("train_tagger", "write_tags", "score_tags")
    assert "score_tags.split is 'test', but no image of it has tags to compare with" in found
    assert found.endswith("use `-S pipelines/tagging/params.yaml:score_tags.split=val`")
    change_params(Path(), {"score_tags": {"split": "val"}, "write_tags": {"images": "val"}})
    assert score().exit_code == 0
    assert parse_metrics(METRICS.read_bytes()).keys() == {"val_full"}


def test_a_split_that_was_not_written_is_refused():
    change_params(Path(), {"score_tags": {"split": "val"}})
    found = refusal("score_tags")
    assert "score_tags.split is 'val', but write_tags.images is 'test'" in found
    assert "annotations/tags.jsonl lacks 12 of 12 images" in found
    assert found.endswith("; set write_tags.images to val or all")


def test_tags_that_no_training_image_has_count_against_recall():
    unseen = {record: replace(record, tags=(*record.tags, "unseen")) for record in WORLD}
    write_captions(CAPTIONS, [unseen[each] if each.split == "test" else each for each in WORLD])
    assert invoke("train_tagger", "write_tags", "score_tags", "tags_page").exit_code == 0
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
def test_a_tagger_answers_in_as_many_ways_as_it_has_parts(changes, answers):
    change_params(Path(), {"train_tagger": changes})
    result = invoke("train_tagger", "write_tags", "score_tags", "tags_page")
    assert result.exit_code == 0, result.output
    found = metrics()
    assert [name for name, value in found.items() if isinstance(value, dict)] == answers
    assert ("mAP" in found) == ("top_3" in answers)
    assert PAGE.read_text().endswith("</html>")
    assert CliRunner().invoke(fne, ["verify", str(TAGS), "models/tagger.safetensors"]).exit_code == 0


def test_inspect_and_verify_know_the_metrics():
    found = CliRunner().invoke(fne, ["inspect", str(METRICS)]).stdout
    assert "metrics/tags.json: test_full, 12 images, 22 concepts, mAP " in found
    assert "  path  " in found
    assert "no faults" in CliRunner().invoke(fne, ["verify", str(METRICS), str(INTERVALS)]).stdout
