import json
from pathlib import Path

from fne.store.rows import Rows
from tests.faults.edits import flip
from tests.support.projects import change_params
from tests.support.stages import write_activations, write_catalog

READY = ("standardize", "embed", "tokenize")


def test_the_baseline_names_split_protocol_and_inputs(run):
    result = run(*READY, "baseline")
    assert result.exit_code == 0
    assert result.stdout.startswith("test_full: closed-form baseline ")
    content = json.loads(Path("metrics/baseline.json").read_text())
    assert content["test_full"]["images"] == 4
    assert (
        content["test_full"]["rsum_low"] <= content["test_full"]["rsum"] <= content["test_full"]["rsum_high"]
    )
    assert content["made_from"]["embeddings"] == Rows.open(Path("features/embeddings")).artifact.digest


def test_the_same_inputs_give_the_same_bytes(run):
    run(*READY, "baseline")
    first = Path("metrics/baseline.json").read_bytes()
    run("baseline")
    assert Path("metrics/baseline.json").read_bytes() == first


def test_too_few_images_leave_a_reason_and_no_fault(run):
    write_catalog(["train"] * 3 + ["val"] * 8 + ["test"] * 9)
    result = run(*READY, "baseline")
    assert result.exit_code == 0
    assert "no closed-form baseline (the training split has 3 captioned images" in result.stdout
    assert json.loads(Path("metrics/baseline.json").read_text())["test_full"] == {}


def test_damage_is_an_error_and_not_a_missing_baseline(run):
    run(*READY)
    flip(next(Path("features/embeddings").glob("shard-*.h5")), 0.5)
    result = run("baseline")
    assert result.exit_code == 2
    assert "damaged" in result.stderr
    assert not Path("metrics/baseline.json").exists()


def test_the_section_has_the_keys_of_cca_and_says_which_is_wrong(run):
    run(*READY)
    change_params(Path(), {"baseline": {"dim": 0}})
    result = run("baseline")
    assert result.exit_code == 2
    assert "section 'baseline': dim: input should be greater than or equal to 1, got 0" in result.stderr


def test_a_closed_form_model_is_trained_encoded_and_evaluated_like_any_other(run):
    change_params(Path(), {"train": {"method": "cca"}})
    write_activations()
    result = run(*READY, "train", "encode", "evaluate")
    assert result.exit_code == 0
    training = json.loads(Path("metrics/training.json").read_text())
    assert (training["updates"], training["collapsed"], training["best_epoch"]) == (0, False, 1)
    metrics = json.loads(Path("metrics/retrieval.json").read_text())["test_full"]
    run("baseline")
    baseline = json.loads(Path("metrics/baseline.json").read_text())["test_full"]
    assert metrics["rsum"] == baseline["rsum"]
