from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stages.check_splits import main
from tests.support.projects import change_params
from tests.support.stages import SPLITS, refused, write_catalog

CHECKED = "checked/splits.txt"


def check() -> Result:
    return CliRunner().invoke(main, ["data/captions.jsonl", CHECKED])


def test_a_catalog_with_all_splits_is_accepted(run):
    assert check().exit_code == 0
    assert Path(CHECKED).is_file()


def test_a_catalog_without_validation_images_is_refused(run):
    write_catalog(["train" if split == "val" else split for split in SPLITS])
    message = refused(check())
    assert message.startswith(
        "data/captions.jsonl: 0 captioned images in split 'val', choosing the best epoch "
    )
    assert "see catalog.val_share" in message
    assert Path(CHECKED).is_file()


def test_the_split_that_is_scored_needs_captions(run):
    write_catalog(["train" if split == "test" else split for split in SPLITS])
    message = refused(check())
    assert "evaluate.split is 'test', but the catalog has captions only in train, val" in message
    change_params(Path(), {"evaluate": {"split": "val"}})
    assert check().exit_code == 0


def test_photographs_without_captions_are_refused_with_what_can_be_computed(run):
    write_catalog(["gallery"] * len(SPLITS))
    message = refused(check())
    assert message.startswith("data/captions.jsonl: no image has captions")
    assert message.endswith("-S ++catalog.captions=optional embed` for embeddings without a model")


@pytest.mark.parametrize("missing", ["val", "test", "all"])
def test_who_wants_embeddings_or_tags_alone_needs_no_captions(run, missing):
    write_catalog(["gallery" if missing in (split, "all") else split for split in SPLITS])
    assert "++catalog.captions=optional" in refused(check())
    change_params(Path(), {"catalog": {"captions": "optional"}})
    assert "catalog.captions is 'optional'" in check().output
