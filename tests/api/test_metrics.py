import pytest

import fne
from fne import InputError


def test_metrics_are_those_that_the_stages_wrote(finished):
    metrics = fne.load_metrics(finished)
    assert set(metrics) >= {"retrieval", "intervals"}
    assert metrics["retrieval"]["test_full"]["images"] == 8
    assert 0 <= metrics["retrieval"]["test_full"]["rsum"] <= 600


def test_damaged_metrics_are_named(finished, tmp_path):
    (tmp_path / "params.yaml").write_bytes((finished / "params.yaml").read_bytes())
    with pytest.raises(InputError, match=r"metrics: no metrics; "):
        fne.load_metrics(tmp_path)
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/retrieval.json").write_text("{")
    with pytest.raises(InputError, match=r"retrieval.json: damaged \(.*\); run `dvc repro`"):
        fne.load_metrics(tmp_path)
