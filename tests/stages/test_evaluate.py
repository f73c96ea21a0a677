from pathlib import Path

import pytest

from fne.store.arrays import read_arrays
from tests.projects import change_params
from tests.stages.conftest import SPLITS, metrics, write_catalog

READY = ("standardize", "embed", "tokenize", "train", "encode")


@pytest.mark.parametrize("split", ["test", "val"])
def test_metrics_are_named_by_their_split(run, split):
    change_params(Path(), {"evaluate": {"split": split}})
    assert run(*READY, "evaluate").exit_code == 0
    found = metrics()
    assert list(found) == [split]
    assert (found[split]["images"], found[split]["captions"]) == (4, 8)
    assert found[split]["text_to_image"]["R@5"] == 100


def test_ranks_and_the_best_are_kept_for_every_query(run):
    change_params(Path(), {"evaluate": {"top": 3}})
    run(*READY, "evaluate")
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert ranks["image_best"].shape == (4, 3)
    assert ranks["caption_best"].shape == (8, 3)
    assert ranks["caption_image"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(ranks["image_ranks"].tolist()) <= set(range(1, 9))


def test_a_split_without_captions_is_refused_with_what_to_type(run):
    write_catalog([split.replace("test", "val") for split in SPLITS])
    result = run(*READY, "evaluate")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: evaluate.split is 'test', but the catalog has captions only in train, val; "
        "use `dvc exp run -S evaluate.split=val`\n",
    )


def test_vectors_of_different_models_are_refused(run, tmp_path):
    run(*READY)
    images = Path("vectors/images").rename(tmp_path / "aside")
    change_params(Path(), {"train": {"seed": 1}})
    run("train", "encode")
    for file in Path("vectors/images").iterdir():
        file.unlink()
    Path("vectors/images").rmdir()
    images.rename("vectors/images")
    result = run("evaluate")
    assert result.exit_code == 2
    assert "Error: vectors/images was made from model " in result.stderr
