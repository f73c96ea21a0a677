from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.extraction.finished_rows import append_hardware, hardware_name, read_hardware
from fne.features.write_embeddings import open_source
from fne.store.rows import Rows
from tests.support.projects import change_params
from tests.support.stages import Run, invoke


@pytest.fixture
def images(run: Run, tmp_path) -> Path:
    """A drawn data set of a few images, cataloged, and random weights."""
    (tmp_path / "random.yaml").write_text("kind: random\nseed: 0\n")
    change_params(tmp_path, {"render": {"images": 6, "side": 64}, "extract": {"weights": "random.yaml"}})
    assert invoke("render").exit_code == 0
    done = invoke("catalog")
    assert done.exit_code == 0, done.output
    return tmp_path


def run_extract():
    return invoke("extract")


def test_a_store_holds_all_layers_of_all_images_and_what_made_them(images):
    assert run_extract().exit_code == 0
    rows = Rows.open(Path("features/activations"), "activations")
    assert (len(rows.ids), rows.features, rows.dtype) == (6, 9344, "float32")
    assert rows.artifact.settings["crops"] == "center"
    assert rows.hardware == hardware_name("cpu")
    assert rows.artifact.lineage["weights"]["settings"] == {"kind": "random", "seed": 0, "untrained": True}


def test_nothing_is_computed_if_another_store_is_embedded_and_finished_rows_stay(images):
    assert run_extract().exit_code == 0
    whole = {path.name: path.read_bytes() for path in Path("features/activations").iterdir()}
    change_params(images, {"embed": {"source": "features/imported"}, "extract": {"weights": "none.pth"}})
    result = run_extract()
    assert result.exit_code == 0
    assert (
        "nothing to compute, because embed.source is 'features/imported'; finished rows are" in result.stdout
    )
    rows = Rows.open(Path("features/activations"), "activations")
    assert (rows.ids, rows.layers, rows.without_rows) == ([], [], "embed.source was 'features/imported'")
    with pytest.raises(
        InputError, match=r"features/activations: has no rows, .* run `dvc repro extract` with"
    ):
        open_source(Path("features/activations"))
    source = {"source": "features/activations"}
    change_params(images, {"embed": source, "extract": {"weights": "random.yaml"}})
    result = run_extract()
    assert "to do" not in result.stdout  # all rows are in the scratch folder
    assert {path.name: path.read_bytes() for path in Path("features/activations").iterdir()} == whole


def test_a_source_may_be_written_in_another_way(images):
    change_params(images, {"embed": {"source": "./features/activations/"}})
    assert run_extract().exit_code == 0
    assert len(Rows.open(Path("features/activations")).ids) == 6


def test_an_image_that_changed_since_the_catalog_stops_the_stage(images):
    changed = next(Path("data/demo/images").iterdir())
    changed.write_bytes(changed.read_bytes() + b"\0")
    result = run_extract()
    assert result.exit_code == 2
    assert f"Error: {changed}: has changed since the catalog was made" in result.stderr


def test_images_are_found_beside_an_annotation_file(images):
    change_params(images, {"catalog": {"root": "data/demo/dataset.json"}})
    assert run_extract().exit_code == 0
    assert len(Rows.open(Path("features/activations")).ids) == 6


def test_weights_that_do_not_fit_stop_the_stage(images):
    change_params(images, {"extract": {"weights": "none.pth"}})
    assert "none.pth: no such weights file; set extract.weights to a file, for" in run_extract().stderr


def test_the_hardware_of_each_row_is_recorded_in_the_store(images):
    assert run_extract().exit_code == 0
    ids = sorted(Rows.open(Path("features/activations")).ids)
    (file, *_) = sorted(Path(".fne").glob("activations/*/*.made"))
    (digest,) = read_hardware(file)
    append_hardware(file, digest, "Another")
    assert run_extract().exit_code == 0
    hardware = Rows.open(Path("features/activations")).hardware
    assert (sorted(hardware), len(hardware["Another"])) == (sorted(["Another", hardware_name("cpu")]), 1)
    assert sorted(each for some in hardware.values() for each in some) == ids
