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
    """A folder with features of somebody else."""
    monkeypatch.chdir(tmp_path)
    np.savez("others.npz", features=VALUES, ids=IDS)
    return tmp_path


def bring(*arguments) -> Result:
    return CliRunner().invoke(main, ["import", "others.npz", *arguments])


def catalog(path="data/captions.jsonl", ids=IDS) -> None:
    write_captions(Path(path), [Captioned(each, "train", ("x",), ()) for each in ids])


def test_what_was_taken_and_what_comes_next_are_said():
    catalog()
    result = bring()
    assert result.exit_code == 0
    size = sum(path.stat().st_size for path in Path("features/imported").iterdir())
    assert result.output.splitlines() == [
        f"features/imported: 3 rows of 2 values (float32), {size:,} bytes",
        "  values    features",
        "  ids       ids, the first is 'a.jpg'",
        "  layers    one layer named 'features': features 2",
        "  catalog   all 3 images of data/captions.jsonl have a row",
        "next:",
        "  dvc add features/imported    # keep it in DVC, for colleagues and for experiments in temporary copies",
        "  dvc exp run -S embed.source=features/imported",
    ]
    assert np.array_equal(Rows.open(Path("features/imported"), "activations").read(IDS), VALUES)


def test_images_of_the_catalog_without_a_row_are_counted_and_named():
    catalog(ids=[*IDS, "d.jpg", "e.jpg"])
    assert (
        "  catalog   2 of the 5 images of data/captions.jsonl have no row, the first is 'd.jpg'; "
        "`embed` will refuse that"
    ) in bring().output.splitlines()


def test_another_catalog_can_be_named():
    catalog("mine.jsonl", ids=["x.jpg"])
    assert "1 of the 1 images of mine.jsonl have no row" in bring("--catalog", "mine.jsonl").output


def test_a_catalog_that_is_named_must_be_there():
    result = bring("--catalog", "mine.jsonl")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: mine.jsonl: no such file; ")
    assert not Path("features").exists()


def test_without_a_catalog_it_is_said_how_to_get_one():
    assert "  catalog   data/captions.jsonl is not here; `dvc repro catalog` makes it" in bring().output


def test_importing_again_replaces_the_store():
    bring("--to", "mine")
    np.savez("others.npz", features=-VALUES, ids=IDS)
    assert bring("--to", "mine").exit_code == 0
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
def test_what_a_stage_writes_is_never_replaced(folder, place):
    Path("dvc.yaml").write_text("stages: {extract: {cmd: x, outs: [features/activations]}}")
    typed = place.format(folder)
    result = bring("--to", typed)
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: {typed}: stage 'extract' writes there; choose another folder with --to\n",
    )


def test_a_folder_of_something_else_is_never_replaced():
    Path("photos").mkdir()
    result = bring("--to", "photos")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: photos: exists and is not a store of ours; choose another folder with --to\n",
    )


def test_a_refused_file_leaves_nothing_behind():
    np.savez("others.npz", features=VALUES, ids=["a", "b", "a"])
    result = bring()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: others.npz: 1 ids come more than once, the first is 'a' in rows 0 and 2\n",
    )
    assert not Path("features/imported").exists()
