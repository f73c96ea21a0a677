import json
from pathlib import Path

import pytest

from fne.store.checksums import parse_metrics
from tests.support.captions import write_world
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal

METRICS, INTERVALS = Path("metrics/captions.json"), Path("metrics/caption_intervals.json")

pytestmark = pytest.mark.usefixtures("scored_captions")


def test_a_split_is_scored_beside_baselines_with_the_same_bytes_every_time():
    first = [path.read_bytes() for path in (METRICS, INTERVALS)]
    assert invoke("score_captions").stdout.startswith("test_full: 8 images, BLEU-4 ")
    assert [path.read_bytes() for path in (METRICS, INTERVALS)] == first
    metrics = json.loads(METRICS.read_text())["test_full"]
    assert metrics["images"] == 8
    assert {"BLEU-4", "ROUGE-L", "CIDEr-D", "length_ratio"} <= metrics["captioner"].keys()
    details = json.loads(INTERVALS.read_text())
    assert "CIDEr-D_above_best_baseline" in details["test_full"]
    mean = sum(score for _, score in details["per_image"]) / 8
    assert mean == pytest.approx(metrics["captioner"]["CIDEr-D"])


def test_another_split_is_scored_without_writing_again(monkeypatch):
    monkeypatch.delattr("fne.describing.write.search")
    change_params(Path(), {"score_captions": {"split": "val", "neighbors": 1}})
    assert invoke("score_captions").exit_code == 0
    assert list(parse_metrics(METRICS.read_bytes())) == ["val_full"]


def test_a_split_that_was_not_written_is_refused():
    change_params(Path(), {"write_captions": {"images": "val", "beam": 1}})
    found = refusal("write_captions", "score_captions")
    assert "score_captions.split is 'test', but write_captions.images is 'val'" in found
    assert "annotations/captions.jsonl lacks 8 of 8 images" in found
    assert found.endswith("; set write_captions.images to test or all")


def test_captions_of_other_embeddings_are_refused():
    write_world(Path(), noise=0.2)
    found = refusal("score_captions")
    assert "annotations/captions.jsonl was made from embeddings " in found
    assert "but features/embeddings holds embeddings " in found
