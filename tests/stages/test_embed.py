from pathlib import Path

import numpy as np
import pytest

from fne.store.arrays import read_arrays
from fne.store.rows import Rows
from tests.support.projects import change_params
from tests.support.stages import refusal, write_activations


def test_a_ternary_embedding_says_what_it_keeps_of_each_layer(run):
    output = run("standardize", "embed").output
    rows = Rows.open(Path("features/embeddings"), "embeddings")
    assert (rows.dtype, rows.features) == ("ternary", 6)
    assert list(rows.artifact.lineage) == ["activations", "statistics", "train_images"]
    values = rows.read(rows.ids)
    shares = rows.artifact.settings["shares"]
    assert list(shares) == ["conv", "fc7"]
    for layer, columns in (("conv", slice(0, 2)), ("fc7", slice(2, 6))):
        own = values[:, columns]
        expected = {"minus": np.mean(own < 0), "zero": np.mean(own == 0), "plus": np.mean(own > 0), "dead": 0}
        assert shares[layer] == pytest.approx(expected, abs=1e-4)
    lines = output.splitlines()
    assert lines[:2] == ["20 images, 6 values each (ternary)", "layer     -1      0     +1   dead"]
    assert lines[2].startswith("conv ")


def test_a_single_layer_can_be_chosen(run):
    change_params(Path(), {"embed": {"kind": "layer"}})
    assert run("standardize", "embed").output == "20 images, 4 values each (float32)\n"
    rows = Rows.open(Path("features/embeddings"))
    assert [layer.name for layer in rows.layers] == ["fc7"]
    assert "shares" not in rows.artifact.settings


@pytest.mark.parametrize("kind", ["blocks", "fne"])
def test_rows_can_be_scaled_to_length_one(run, kind):
    change_params(Path(), {"embed": {"kind": kind, "rows": "unit"}})
    assert run("standardize", "embed").output.startswith("20 images, 6 values each (float32)\n")
    rows = Rows.open(Path("features/embeddings"))
    assert np.allclose(np.linalg.norm(rows.read(rows.ids), axis=1), 1)
    assert rows.artifact.settings["rows"] == "unit"


def test_quantiles_are_found_and_recorded(run):
    change_params(Path(), {"embed": {"thresholds": "quantiles", "low": 0.25, "high": 0.75}})
    assert run("standardize", "embed").exit_code == 0
    rows, ordinary = Rows.open(Path("features/embeddings")), read_arrays(Path("features/statistics.h5"))
    activations = Rows.open(Path("features/activations")).read(ordinary.texts("ids"))
    scores = (activations - ordinary["mean"]) / ordinary["deviation"]
    settings = rows.artifact.settings
    assert (settings["low"], settings["high"]) == (0.25, 0.75)
    assert settings["z_low"] == pytest.approx(np.quantile(scores, 0.25, method="inverted_cdf"), abs=1e-3)
    assert settings["z_high"] == pytest.approx(np.quantile(scores, 0.75, method="inverted_cdf"), abs=1e-3)


def test_the_place_of_the_source_does_not_matter(run):
    run("standardize", "embed")
    before = Path("features/embeddings/manifest.json").read_bytes()
    Path("features/activations").rename("features/imported")
    change_params(Path(), {"embed": {"source": "features/imported"}})
    run("standardize", "embed")
    assert Path("features/embeddings/manifest.json").read_bytes() == before


def test_a_layer_that_the_store_lacks_is_refused(run):
    run("standardize")
    change_params(Path(), {"embed": {"layers": ["fc6"]}})
    assert "features/activations: has no layer 'fc6'; it has conv, fc7; see `embed.layers`" in refusal(
        "embed"
    )


def test_a_value_of_a_test_image_that_is_not_finite_is_refused_too(run):
    write_activations(changed={("19.png", 0): np.inf})
    assert run("standardize").exit_code == 0
    assert "features/activations: row '19.png' has inf in layer 'conv', column 0" in refusal("embed")


def test_statistics_of_other_activations_are_refused_with_both_digests(run):
    run("standardize")
    old = Rows.open(Path("features/activations")).artifact.digest
    new = write_activations(seed=1)
    message = refusal("embed")
    assert message.startswith(
        f"features/activations holds activations {new[:12]}…, but features/statistics.h5"
    )
    assert message.endswith(f"activations {old[:12]}…; run `dvc repro`")


def test_thresholds_in_the_wrong_order_are_refused(run):
    run("standardize")
    change_params(Path(), {"embed": {"low": 0.5}})
    assert "section 'embed': low must be below high, got low=0.5, high=0.15" in refusal("embed")
