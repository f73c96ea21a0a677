import json

import pytest

from fne.core.errors import InputError
from fne.evaluation.baseline import (
    Baseline,
    baseline_artifact,
    read_baseline,
    write_baseline,
    write_no_baseline,
)
from tests.support.refusals import refused

LINEAGE = {"embeddings": {"digest": "e" * 64}, "tokens": {"digest": "t" * 64}, "captions": {"digest": "c"}}
METRICS = {
    "image_to_text": {"R@1": 10.0},
    "text_to_image": {"R@1": 5.0},
    "rsum": 15.0,
    "chance": 9.5,
    "ties": {},
    "images": 4,
    "captions": 20,
}


def test_a_baseline_comes_back_with_its_interval(tmp_path):
    line = write_baseline(
        tmp_path / "baseline.json", "test_full", METRICS, {"low": 12.0, "high": 18.0}, {}, LINEAGE, 14.0
    )
    assert line == "test_full: closed-form baseline 15.0 (12.0 to 18.0), chance 9.5"
    assert read_baseline(tmp_path / "baseline.json", "test_full", LINEAGE) == Baseline(
        15.0, 12.0, 18.0, validation=14.0
    )


def test_where_there_is_no_baseline_the_reason_is_kept(tmp_path):
    line = write_no_baseline(tmp_path / "baseline.json", "test_full", "too few images", {}, LINEAGE)
    assert line == "test_full: no closed-form baseline (too few images)"
    found = read_baseline(tmp_path / "baseline.json", "test_full", LINEAGE)
    assert (found.rsum, found.reason) == (None, "too few images")


def test_a_baseline_of_other_embeddings_is_refused_with_both_digests(tmp_path):
    write_baseline(
        tmp_path / "baseline.json", "test_full", METRICS, {"low": 12.0, "high": 18.0}, {}, LINEAGE, 14.0
    )
    other = LINEAGE | {"embeddings": {"digest": "f" * 64}}
    with refused(
        f"{tmp_path}/baseline.json was made from embeddings eeeeeeeeeeee…, but the evaluation from "
        "ffffffffffff…; run `dvc repro`"
    ):
        read_baseline(tmp_path / "baseline.json", "test_full", other)


def test_a_baseline_of_another_split_is_refused(tmp_path):
    write_baseline(
        tmp_path / "baseline.json", "val_full", METRICS, {"low": 12.0, "high": 18.0}, {}, LINEAGE, 14.0
    )
    with pytest.raises(InputError, match="has no results for test_full; run `dvc repro baseline`"):
        read_baseline(tmp_path / "baseline.json", "test_full", LINEAGE)


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"test_full": {}}), "[" * 100_000])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "baseline.json").write_text(content)
    with pytest.raises(InputError) as caught:
        read_baseline(tmp_path / "baseline.json", "test_full", LINEAGE)
    assert caught.value.message.startswith(f"{tmp_path}/baseline.json: damaged (")


def test_a_baseline_names_its_settings_and_what_it_was_made_from(tmp_path):
    settings = {"split": "test", "protocol": "full"}
    write_baseline(
        tmp_path / "baseline.json", "test_full", METRICS, {"low": 12.0, "high": 18.0}, settings, LINEAGE, 14.0
    )
    artifact = baseline_artifact(tmp_path / "baseline.json")
    assert (artifact.name, artifact.settings) == ("baseline", settings)
    assert {name: entry["digest"] for name, entry in artifact.lineage.items()} == {
        name: LINEAGE[name]["digest"] for name in ("embeddings", "tokens")
    }
