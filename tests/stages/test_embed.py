from pathlib import Path

from fne.store.rows import Rows
from tests.projects import change_params
from tests.stages.conftest import write_activations


def test_the_embedding_is_ternary_and_knows_its_ancestors(run):
    assert run("standardize", "embed").exit_code == 0
    rows = Rows.open(Path("features/embeddings"), "embeddings")
    assert (rows.dtype, rows.features) == ("ternary", 6)
    assert list(rows.artifact.lineage) == ["activations", "statistics", "train_images"]


def test_a_single_layer_can_be_chosen(run):
    change_params(Path(), {"embed": {"kind": "layer"}})
    run("standardize", "embed")
    assert [layer.name for layer in Rows.open(Path("features/embeddings")).layers] == ["fc7"]


def test_statistics_of_other_activations_are_refused_with_both_digests(run):
    run("standardize")
    old = Rows.open(Path("features/activations")).artifact.digest
    write_activations(seed=1)
    new = Rows.open(Path("features/activations")).artifact.digest
    result = run("embed")
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: features/activations holds activations {new[:12]}…, but features/statistics.h5 was made from "
        f"activations {old[:12]}…; run `dvc repro`\n",
    )


def test_thresholds_in_the_wrong_order_are_refused(run):
    run("standardize")
    change_params(Path(), {"embed": {"low": 0.5}})
    result = run("embed")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'embed': low must be below high, got low=0.5, high=0.15\n",
    )
