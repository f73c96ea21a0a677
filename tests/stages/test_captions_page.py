import shutil
from pathlib import Path

import pytest

from fne.store.checksums import parse_metrics, write_metrics
from tests.support.projects import change_params
from tests.support.stages import invoke

PAGE = Path("report/captions.html")
METRICS, INTERVALS = Path("metrics/captions.json"), Path("metrics/caption_intervals.json")


@pytest.fixture
def scored(captioning_project):
    """A folder in which captions were written and scored."""
    result = invoke("write_captions", "score_captions")
    assert result.exit_code == 0, result.output
    return captioning_project


def refusal():
    result = invoke("captions_page")
    assert result.exit_code == 2, result.output
    return result.stderr


def test_the_page_shows_the_scores_of_the_files(scored):
    assert invoke("captions_page").exit_code == 0
    assert "What the captioner writes about images" in PAGE.read_text()
    found = parse_metrics(METRICS.read_bytes())["test_full"]["captioner"]
    assert f"<strong>{found['CIDEr-D']:.3f}</strong>" in PAGE.read_text()


def test_equal_inputs_give_equal_bytes(scored):
    invoke("captions_page")
    first = PAGE.read_bytes()
    invoke("captions_page")
    assert PAGE.read_bytes() == first


def test_nothing_is_searched_or_scored_for_another_page(scored, monkeypatch):
    change_params(Path(), {"captions_page": {"examples": 2}})
    monkeypatch.delattr("fne.describing.write.search")
    for name in ("cider_d", "summarize", "caption_intervals", "draws"):
        monkeypatch.delattr(f"fne.evaluation.score_captions.{name}")
    result = invoke("captions_page")
    assert result.exit_code == 0, result.output
    assert PAGE.read_text().count("<article") == 2


def test_scores_of_other_captions_are_refused(scored):
    change_params(Path(), {"write_captions": {"beam": 1}})
    invoke("write_captions")
    found = refusal()
    assert found.startswith(f"Error: {INTERVALS} was made from written_captions ")
    assert "but annotations/captions.jsonl holds written_captions " in found
    assert found.endswith("; run `dvc repro pipelines/captioning/dvc.yaml`\n")


def test_metrics_and_intervals_of_different_runs_are_refused(scored):
    first = METRICS.read_bytes()
    change_params(Path(), {"score_captions": {"split": "val"}})
    invoke("score_captions")
    METRICS.write_bytes(first)
    assert refusal() == (
        f"Error: {METRICS} and {INTERVALS} are of different runs; "
        "run `dvc repro pipelines/captioning/dvc.yaml`\n"
    )


@pytest.mark.parametrize("path", [METRICS, INTERVALS])
def test_damaged_scores_are_refused(scored, path):
    path.write_bytes(path.read_bytes().replace(b"CIDEr", b"cIDEr", 1))
    assert f"{path}: damaged (its content does not match its seal)" in refusal()


@pytest.mark.parametrize("key", ["made_from", "test_full", "per_image"])
def test_intervals_of_something_else_are_refused(scored, key):
    content = parse_metrics(INTERVALS.read_bytes())
    del content[key]
    write_metrics(INTERVALS, content)
    assert f"are not the scores of a captioner (KeyError('{key}')); run `dvc repro" in refusal()


def test_a_history_of_another_captioner_is_refused(scored):
    shutil.rmtree(".fne")
    shutil.move("models/captioner.safetensors", "other")
    change_params(Path(), {"train_captioner": {"seed": 1}})
    assert invoke("train_captioner").exit_code == 0
    shutil.move("other", "models/captioner.safetensors")
    assert "models/captioner_history was made from captioner " in refusal()
