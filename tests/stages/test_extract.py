from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.activations.processor import note, processor_name, read_notes
from fne.store.rows import Rows
from stages.catalog import main as catalog
from stages.extract import main as extract
from stages.render import main as render
from tests.projects import change_params
from tests.stages.conftest import Run


@pytest.fixture
def images(run: Run, tmp_path) -> Path:
    """A drawn data set of a few images, cataloged, and random weights."""
    (tmp_path / "random.yaml").write_text("kind: random\nseed: 0\n")
    change_params(tmp_path, {"render": {"images": 6, "side": 64}, "extract": {"weights": "random.yaml"}})
    assert CliRunner().invoke(render, ["data/demo"]).exit_code == 0
    done = CliRunner().invoke(catalog, ["data/images.jsonl", "data/captions.jsonl", "data/rejects.csv"])
    assert done.exit_code == 0, done.output
    return tmp_path


def run_extract():
    return CliRunner().invoke(extract, ["data/images.jsonl", "features/activations"])


def test_a_store_holds_all_layers_of_all_images_and_what_made_them(images):
    assert run_extract().exit_code == 0
    rows = Rows.open(Path("features/activations"), "activations")
    assert (len(rows.ids), rows.features, rows.dtype) == (6, 9344, "float32")
    assert rows.artifact.settings["crops"] == "center"
    assert rows.processors == processor_name("cpu")
    assert rows.artifact.lineage["weights"]["settings"] == {"kind": "random", "seed": 0, "untrained": True}


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
    result = run_extract()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: none.pth: no such weights file; set extract.weights to a file, such as weights/random.yaml\n",
    )


def test_rows_of_several_processors_are_told_apart(images):
    assert run_extract().exit_code == 0
    ids = sorted(Rows.open(Path("features/activations")).ids)
    (notes, *_) = sorted(Path(".fne").glob("activations/*/*.made"))
    (digest,) = read_notes(notes)
    note(notes, digest, "Another")
    assert run_extract().exit_code == 0
    processors = Rows.open(Path("features/activations")).processors
    assert (sorted(processors), len(processors["Another"])) == (sorted(["Another", processor_name("cpu")]), 1)
    assert sorted(each for some in processors.values() for each in some) == ids
