import json
from pathlib import Path

import pytest

from fne.store.checksums import parse_metrics
from tests.support.captions import write_world
from tests.support.projects import change_params
from tests.support.stages import invoke

METRICS, INTERVALS = Path("metrics/captions.json"), Path("metrics/caption_intervals.json")

pytestmark = pytest.mark.usefixtures("captioning_project")


def test_a_split_is_scored_beside_baselines():
    result = invoke("write_captions", "score_captions")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("test_full: 8 images, BLEU-4 ")
    metrics = json.loads(METRICS.read_text())["test_full"]
    assert metrics["images"] == 8
    assert {"BLEU-4", "ROUGE-L", "CIDEr-D", "length_ratio"} <= metrics["captioner"].keys()
    details = json.loads(INTERVALS.read_text())
    assert "CIDEr-D_above_best_baseline" in details["test_full"]
    mean = sum(score for _, score in details["per_image"]) / 8
    assert mean == pytest.approx(metrics["captioner"]["CIDEr-D"])


def test_equal_inputs_give_equal_bytes():
    invoke("write_captions", "score_captions")
    first = [path.read_bytes() for path in (METRICS, INTERVALS)]
    invoke("score_captions")
    assert [path.read_bytes() for path in (METRICS, INTERVALS)] == first


def test_another_split_is_scored_without_writing_again(monkeypatch):
    invoke("write_captions")
    monkeypatch.delattr("fne.describing.write.search")
    change_params(Path(), {"score_captions": {"split": "val", "neighbors": 1}})
    assert invoke("score_captions").exit_code == 0
    assert list(parse_metrics(METRICS.read_bytes())) == ["val_full"]


def test_a_split_that_was_not_written_is_refused():
    change_params(Path(), {"write_captions": {"images": "val", "beam": 1}})
    result = invoke("write_captions", "score_captions")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "Error: params.yaml: score_captions.split is 'test', but write_captions.images is 'val' "
        "(annotations/captions.jsonl lacks 8 of 8 images, the first is "
    )
    assert result.stderr.endswith("); set write_captions.images to test or all\n")
    assert result.stderr.count("\n") == 1


def test_captions_of_other_embeddings_are_refused():
    invoke("write_captions")
    write_world(Path(), noise=0.2)
    result = invoke("score_captions")
    assert result.exit_code == 2
    assert "annotations/captions.jsonl was made from embeddings " in result.stderr
    assert "but features/embeddings holds embeddings " in result.stderr
