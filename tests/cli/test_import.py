from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fne.cli import main
from fne.store.catalog import Captioned, write_captions
from fne.store.rows import Rows

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
