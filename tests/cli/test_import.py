from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fne.cli import main
from fne.store.catalog import Captioned, write_captions
from fne.store.rows import Rows
from tests.support.projects import change_params
from tests.support.search import draw, run_stages, write_project

IDS = ["a.jpg", "b.jpg", "c.jpg"]
VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Make a folder with a file of features."""
    monkeypatch.chdir(tmp_path)
    np.savez("features.npz", features=VALUES, ids=IDS)
    return tmp_path


def run_import(*arguments) -> Result:
    return CliRunner().invoke(main, ["import", "features.npz", *arguments])


def catalog(path="data/captions.jsonl", ids=IDS) -> None:
    write_captions(Path(path), [Captioned(each, "train", ("x",), ()) for each in ids])


def test_the_imported_arrays_and_the_next_commands_are_printed():
    catalog()
    result = run_import()
    assert result.exit_code == 0
    size = sum(path.stat().st_size for path in Path("features/imported").iterdir())
    assert result.output.splitlines() == [
        f"features/imported: 3 rows of 2 values (float32), {size:,} bytes",
        "  values    features",
        "  ids       ids, the first is 'a.jpg'",
        "  layers    one layer named 'features': features 2",
        "  catalog   all 3 images of data/captions.jsonl have a row",
        "next:",
        "  dvc add features/imported    # track it with DVC, for colleagues and temporary experiments",
        "  dvc exp run -S embed.source=features/imported",
    ]
    assert np.array_equal(Rows.open(Path("features/imported"), "activations").read(IDS), VALUES)


def test_images_of_the_catalog_without_a_row_are_reported():
    catalog(ids=[*IDS, "d.jpg", "e.jpg"])
    assert (
        "  catalog   2 of the 5 images of data/captions.jsonl have no row, the first is 'd.jpg'; "
        "`embed` will refuse the store"
    ) in run_import().output.splitlines()


def test_another_catalog_can_be_named():
    catalog("mine.jsonl", ids=["x.jpg"])
    assert "1 of the 1 images of mine.jsonl have no row" in run_import("--catalog", "mine.jsonl").output


def test_a_named_catalog_must_exist():
    result = run_import("--catalog", "mine.jsonl")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: mine.jsonl: no such file; ")
    assert not Path("features").exists()


def test_without_a_catalog_the_command_to_make_it_is_printed():
    assert (
        "  catalog   data/captions.jsonl does not exist; `dvc repro catalog` makes it" in run_import().output
    )


def test_importing_again_replaces_the_store():
    run_import("--to", "mine")
    np.savez("features.npz", features=-VALUES, ids=IDS)
    assert run_import("--to", "mine").exit_code == 0
    assert np.array_equal(Rows.open(Path("mine")).read(IDS), -VALUES)


@pytest.mark.parametrize(
    "place",
    [
        "features/activations",
        "features/activations/mine",
        "x/../features/activations",
        "{}/features/activations",
    ],
)
def test_the_output_of_a_stage_is_never_replaced(folder, place):
    Path("dvc.yaml").write_text("stages: {extract: {cmd: x, outs: [features/activations]}}")
    typed = place.format(folder)
    result = run_import("--to", typed)
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: {typed}: stage 'extract' writes this folder; choose another one with --to\n",
    )


def test_a_folder_that_is_not_a_row_store_is_never_replaced():
    Path("photos").mkdir()
    result = run_import("--to", "photos")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: photos: exists and is not an intact row store of activations; choose another folder with --to, "
        "or remove it\n",
    )


def test_a_refused_file_leaves_nothing_behind():
    np.savez("features.npz", features=VALUES, ids=["a", "b", "a"])
    result = run_import()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: features.npz: 1 ids are duplicated, the first is 'a' in rows 0 and 2\n",
    )
    assert not Path("features/imported").exists()


def test_a_caffemodel_needs_its_network(folder):
    Path("m.caffemodel").write_bytes(b"")
    result = CliRunner().invoke(main, ["import", "m.caffemodel"])
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: m.caffemodel: which network is it? Add --backbone vgg16 or --backbone vgg19\n",
    )


def test_a_damaged_caffemodel_is_refused_in_one_line(folder):
    Path("m.caffemodel").write_bytes(b"<html>")
    result = CliRunner().invoke(main, ["import", "m.caffemodel", "--backbone", "vgg16"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith("Error: m.caffemodel: not a readable model of Caffe: ")


def test_options_of_features_and_of_weights_are_not_mixed(folder):
    assert "--backbone is for a .caffemodel" in run_import("--backbone", "vgg16").stderr
    result = CliRunner().invoke(main, ["import", "m.caffemodel", "--ids", "x"])
    assert result.exit_code == 2


def test_a_new_photo_can_be_searched_once_the_network_of_imported_features_is_known(tmp_path):
    write_project(tmp_path)
    rows = Rows.open(Path("features/activations"))
    names = [layer.name for layer in rows.layers for _ in range(layer.features)]
    np.savez("features.npz", features=rows.read(rows.ids).astype(np.float16), ids=rows.ids, layers=names)
    assert run_import().exit_code == 0
    change_params(tmp_path, {"embed": {"source": "features/imported"}})
    following = ["standardize", "embed", "train", "encode"]
    run_stages(*following)
    draw(tmp_path / "new.png", "crimson", "line")
    refused = CliRunner().invoke(main, ["search", "new.png"])
    assert refused.exit_code == 2
    assert "the network that computed them is unknown" in refused.stderr
    result = run_import("--photos", "photos")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(
        "features/imported: computed by alexnet with weights/random.yaml; 16 photos agree, the largest "
        "difference of a layer is 0.000"
    )
    run_stages(*following)
    found = CliRunner().invoke(main, ["search", "new.png"])
    assert found.exit_code == 0, found.output
    assert found.output.startswith(
        "sentences for new.png, by model (cosine), among 40 sentences of the catalog"
    )


def test_a_network_that_computes_other_rows_is_not_recorded(tmp_path):
    write_project(tmp_path)
    rows = Rows.open(Path("features/activations"))
    names = [layer.name for layer in rows.layers for _ in range(layer.features)]
    np.savez("features.npz", features=1.02 * rows.read(rows.ids), ids=rows.ids, layers=names)
    result = run_import("--photos", "photos")
    assert result.exit_code == 2
    assert "`extract` in params.yaml computes another row than that of features/imported" in result.stderr
    assert result.stderr.endswith("; features/imported was imported without its network\n")
    assert Rows.open(Path("features/imported")).artifact.lineage == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["features.npz", "--captions"], "--photos is for the features of images"),
        (["vgg.caffemodel"], "a .caffemodel needs only --backbone and --to"),
    ],
)
def test_photos_belong_to_features_of_images(tmp_path, arguments, message):
    result = CliRunner().invoke(main, ["import", *arguments, "--photos", str(tmp_path)])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_of_photos_must_exist():
    result = run_import("--photos", "nowhere")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: nowhere: no such folder; --photos names a folder with photos of the features\n",
    )
    assert not Path("features").exists()


def test_without_parameters_the_features_are_imported_without_their_network(tmp_path):
    result = run_import("--photos", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: params.yaml: ")
    assert result.stderr.endswith("; features/imported was imported without its network\n")
    assert Rows.open(Path("features/imported")).ids == IDS
