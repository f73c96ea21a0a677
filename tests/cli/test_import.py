from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from fne.store.catalog import Captioned, write_captions
from fne.store.rows import Rows
from tests.support.commands import fne, refused
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
    return fne("import", "features.npz", *arguments)


def fault(*arguments) -> str:
    return refused("import", "features.npz", *arguments).removeprefix("Error: ")


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
    said = "  catalog   data/captions.jsonl does not exist; `dvc repro catalog` makes it"
    assert said in run_import().output
    catalog(ids=[*IDS, "d.jpg", "e.jpg"])
    (said,) = [line for line in run_import().output.splitlines() if line.startswith("  catalog ")]
    assert "2 of the 5 images of data/captions.jsonl have no row, the first is 'd.jpg'; `embed` will" in said
    catalog("mine.jsonl", ids=["x.jpg"])
    assert "1 of the 1 images of mine.jsonl have no row" in run_import("--catalog", "mine.jsonl").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--catalog", "mine.jsonl"], "mine.jsonl: no such file; "),
        (
            ["--photos", "nowhere"],
            "nowhere: no such folder; --photos names a folder with photos of the features\n",
        ),
        (["--backbone", "vgg16"], "--backbone is for a .caffemodel"),
        (["--captions", "--photos", "."], "--photos is for the features of images"),
    ],
)
def test_options_that_do_not_fit_are_refused_and_nothing_is_written(arguments, said):
    assert said in fault(*arguments)
    assert not Path("features").exists()


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
    said = f"{typed}: stage 'extract' writes this folder; choose another one with --to\n"
    assert fault("--to", typed) == said


def test_a_folder_that_is_not_a_row_store_is_never_replaced():
    Path("photos").mkdir()
    said = fault("--to", "photos")
    assert said.startswith("photos: exists and is not an intact row store of activations; ")
    assert said.endswith("with --to, or remove it\n")


def test_a_refused_file_leaves_nothing_behind():
    np.savez("features.npz", features=VALUES, ids=["a", "b", "a"])
    assert fault() == "features.npz: 1 ids are duplicated, the first is 'a' in rows 0 and 2\n"
    assert not Path("features/imported").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "which network is it? Add --backbone vgg16 or --backbone vgg19\n"),
        (["--backbone", "vgg16"], "not a readable model of Caffe: "),
        (["--ids", "x"], ""),
        (["--photos", "."], "a .caffemodel needs only --backbone and --to"),
    ],
)
def test_a_caffemodel_that_is_damaged_or_has_other_options_is_refused(options, said):
    Path("m.caffemodel").write_bytes(b"<html>")
    message = refused("import", "m.caffemodel", *options)
    assert said in message
    assert message.splitlines()[-1].startswith("Error: ")


def save_activations(factor: float) -> None:
    """Write the extracted activations, times a factor, into a file of features."""
    rows = Rows.open(Path("features/activations"))
    names = [layer.name for layer in rows.layers for _ in range(layer.features)]
    np.savez(
        "features.npz", features=(factor * rows.read(rows.ids)).astype(np.float16), ids=rows.ids, layers=names
    )


def test_a_new_photo_can_be_searched_once_the_network_of_imported_features_is_known(tmp_path):
    write_project(tmp_path)
    save_activations(1.02)
    said = fault("--photos", "photos")
    assert "`extract` in params.yaml computes another row than that of features/imported" in said
    assert said.endswith("; features/imported was imported without its network\n")
    assert Rows.open(Path("features/imported")).artifact.lineage == {}
    save_activations(1)
    assert run_import().exit_code == 0
    change_params(tmp_path, {"embed": {"source": "features/imported"}})
    following = ["standardize", "embed", "train", "encode"]
    run_stages(*following)
    draw(tmp_path / "new.png", "crimson", "line")
    assert "the network that computed them is unknown" in refused("search", "new.png")
    result = run_import("--photos", "photos")
    assert result.exit_code == 0, result.output
    said = "features/imported: computed by alexnet with weights/random.yaml; 16 photos agree, the largest difference"
    assert result.output.startswith(f"{said} of a layer is 0.000")
    run_stages(*following)
    found = fne("search", "new.png")
    assert found.exit_code == 0, found.output
    said = "sentences for new.png, by model (cosine), among 40 sentences of the catalog"
    assert found.output.startswith(said)


def test_without_parameters_the_features_are_imported_without_their_network(tmp_path):
    said = fault("--photos", str(tmp_path))
    assert said.startswith("params.yaml: ")
    assert said.endswith("; features/imported was imported without its network\n")
    assert Rows.open(Path("features/imported")).ids == IDS
