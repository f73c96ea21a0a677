from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.cli import main as fne
from fne.store.checksums import parse_metrics, write_metrics
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal

PAGE = Path("report/tags.html")
METRICS, INTERVALS = Path("metrics/tags.json"), Path("metrics/tag_intervals.json")

pytestmark = pytest.mark.usefixtures("scored_tags")


def test_two_runs_give_the_same_bytes_and_inspect_knows_the_page():
    assert invoke("tags_page").exit_code == 0
    first = PAGE.read_bytes()
    invoke("tags_page")
    assert PAGE.read_bytes() == first
    assert CliRunner().invoke(fne, ["inspect", str(PAGE)]).stdout.startswith(f"{PAGE}: ")


def test_nothing_is_tagged_or_scored_for_a_page(monkeypatch):
    change_params(Path(), {"tags_page": {"examples": 2}})
    monkeypatch.delattr("fne.describing.write.search")
    for name in ("label_metrics", "mean_average_precision", "average_precisions", "per_class"):
        monkeypatch.delattr(f"fne.evaluation.score_tags.{name}")
    result = invoke("tags_page")
    assert result.exit_code == 0, result.output
    assert PAGE.read_text().count("<article") == 2


def test_scores_of_other_tags_are_refused():
    change_params(Path(), {"write_tags": {"images": "all"}})
    invoke("write_tags")
    found = refusal("tags_page")
    assert found.startswith(f"{INTERVALS} was made from tags ")
    assert "but annotations/tags.jsonl holds tags " in found
    assert found.endswith("; run `dvc repro pipelines/tagging/dvc.yaml`")


def test_metrics_and_intervals_of_different_runs_are_refused():
    first = METRICS.read_bytes()
    change_params(Path(), {"score_tags": {"threshold": 0.25}})
    invoke("score_tags")
    METRICS.write_bytes(first)
    assert f"{METRICS} and {INTERVALS} are of different runs; run" in refusal("tags_page")


@pytest.mark.parametrize("key", ["made_from", "test_full", "tags", "image_f1", "confusions"])
def test_intervals_of_something_else_are_refused(key):
    content = parse_metrics(INTERVALS.read_bytes())
    del content[key]
    write_metrics(INTERVALS, content)
    assert f"are not the scores of a tagger (KeyError('{key}')); run `dvc repro" in refusal("tags_page")


def test_a_history_of_another_tagger_is_refused():
    change_params(Path(), {"train_tagger": {"seed": 1}})
    assert invoke("train_tagger").exit_code == 0
    assert "models/tagger_history was made from tagger " in refusal("tags_page")
