import shutil
from pathlib import Path

import pytest

from fne.store.checksums import parse_metrics, write_metrics
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal

PAGE = Path("report/captions.html")
METRICS, INTERVALS = Path("metrics/captions.json"), Path("metrics/caption_intervals.json")

pytestmark = pytest.mark.usefixtures("scored_captions")


def test_nothing_is_searched_or_scored_for_a_page_and_its_scores_are_those_of_the_files(monkeypatch):
    change_params(Path(), {"captions_page": {"examples": 2}})
    monkeypatch.delattr("fne.describing.write.search")
    for name in ("cider_d", "summarize", "caption_intervals", "draws"):
        monkeypatch.delattr(f"fne.evaluation.score_captions.{name}")
    result = invoke("captions_page")
    assert result.exit_code == 0, result.output
    page = PAGE.read_text()
    assert page.count("<article") == 2
    found = parse_metrics(METRICS.read_bytes())["test_full"]["captioner"]
    assert f"<strong>{found['CIDEr-D']:.3f}</strong>" in page


def test_scores_of_other_captions_are_refused():
    change_params(Path(), {"write_captions": {"beam": 1}})
    invoke("write_captions")
    found = refusal("captions_page")
    assert found.startswith(f"{INTERVALS} was made from written_captions ")
    assert "but annotations/captions.jsonl holds written_captions " in found
    assert found.endswith("; run `dvc repro pipelines/captioning/dvc.yaml`")


def test_metrics_and_intervals_of_different_runs_are_refused():
    first = METRICS.read_bytes()
    change_params(Path(), {"score_captions": {"split": "val"}})
    invoke("score_captions")
    METRICS.write_bytes(first)
    assert f"{METRICS} and {INTERVALS} are of different runs; run" in refusal("captions_page")


@pytest.mark.parametrize("path", [METRICS, INTERVALS])
def test_damaged_scores_are_refused(path):
    path.write_bytes(path.read_bytes().replace(b"CIDEr", b"cIDEr", 1))
    assert f"{path}: damaged (its content does not match its seal)" in refusal("captions_page")


@pytest.mark.parametrize("key", ["made_from", "test_full", "per_image"])
def test_intervals_of_something_else_are_refused(key):
    content = parse_metrics(INTERVALS.read_bytes())
    del content[key]
    write_metrics(INTERVALS, content)
    assert f"not the scores of a captioner (KeyError('{key}')); run `dvc repro" in refusal("captions_page")


def test_a_history_of_another_captioner_is_refused():
    shutil.rmtree(".fne")
    shutil.move("models/captioner.safetensors", "other")
    change_params(Path(), {"train_captioner": {"seed": 1}})
    assert invoke("train_captioner").exit_code == 0
    shutil.move("other", "models/captioner.safetensors")
    assert "models/captioner_history was made from captioner " in refusal("captions_page")
