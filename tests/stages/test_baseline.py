import json
from pathlib import Path

from fne.store.rows import Rows
from tests.faults.edits import flip
from tests.support.projects import change_params
from tests.support.stages import metrics, refusal, write_catalog

READY = ("standardize", "embed", "tokenize")
BASELINE = Path("metrics/baseline.json")


def test_the_baseline_names_split_protocol_and_inputs(ready):
    result = ready("baseline")
    assert result.stdout.startswith("test_full: closed-form baseline ")
    content = json.loads(BASELINE.read_text())
    found = content["test_full"]
    assert found["images"] == 4
    assert found["rsum_low"] <= found["rsum"] <= found["rsum_high"]
    assert 0 < found["validation_rsum"] <= 600
    assert content["made_from"]["embeddings"] == Rows.open(Path("features/embeddings")).artifact.digest
    first = BASELINE.read_bytes()
    ready("baseline")
    assert BASELINE.read_bytes() == first


def test_too_few_images_leave_a_reason_and_no_fault(run):
    write_catalog(["train"] * 3 + ["val"] * 8 + ["test"] * 9)
    result = run(*READY, "baseline")
    assert result.exit_code == 0
    assert "no closed-form baseline (the training split has 3 captioned images" in result.stdout
    assert json.loads(BASELINE.read_text())["test_full"] == {}


def test_damage_is_an_error_and_not_a_missing_baseline(ready):
    flip(next(Path("features/embeddings").glob("shard-*.h5")), 0.5)
    assert "damaged" in refusal("baseline")
    assert not BASELINE.exists()


def test_the_section_has_the_keys_of_cca_and_says_which_is_wrong(ready):
    change_params(Path(), {"baseline": {"dim": 0}})
    assert "section 'baseline': dim: " in refusal("baseline")


def test_a_closed_form_model_is_trained_encoded_and_evaluated_like_any_other(ready):
    change_params(Path(), {"train": {"method": "cca"}})
    assert ready("train", "encode", "evaluate", "baseline").exit_code == 0
    training = json.loads(Path("metrics/training.json").read_text())
    assert (training["updates"], training["collapsed"], training["best_epoch"]) == (0, False, 1)
    assert metrics()["test_full"]["rsum"] == json.loads(BASELINE.read_text())["test_full"]["rsum"]
