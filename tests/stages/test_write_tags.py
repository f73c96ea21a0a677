from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fne.cli import main as fne
from fne.core.settings import load_section
from fne.describing.annotations import read_tagged
from fne.describing.model_file import read_describing_model
from fne.describing.settings import TAGGER, WriteTags
from fne.describing.write import Writer
from fne.store.catalog import write_captions
from fne.store.rows import Rows
from fne.training.row_source import StoreRows
from tests.faults.edits import flip
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal
from tests.support.tagging import CAPTIONS, EMBEDDINGS, scenes

TAGS, MODEL = Path("annotations/tags.jsonl"), Path("models/tagger.safetensors")
WORLD = scenes(60)
TEST = [record for record in WORLD if record.split == "test"]

pytestmark = pytest.mark.usefixtures("tagging_project")


def write():
    result = invoke("write_tags")
    assert result.exit_code == 0, result.output
    return read_tagged(TAGS)


def test_the_images_of_a_split_are_tagged_with_exactly_the_probabilities_of_the_tagger():
    found = write()
    assert [image.id for image in found.images] == sorted(each.id for each in TEST)
    assert found.artifact.lineage.keys() == {"captions", "embeddings", "tagger", "train_images"}
    top_k = load_section(Path("params.yaml"), "write_tags", WriteTags).top_k
    assert {len(image.top) for image in found.images} == {top_k}
    tagger, file = read_describing_model(MODEL, TAGGER)
    seen = Writer(tagger, file.vocabulary).tag_store(StoreRows(Rows.open(EMBEDDINGS)), TEST).probabilities
    exact = {record.id: own for record, own in zip(TEST, seen, strict=True)}
    for image in found.images:
        np.testing.assert_array_equal(np.array(image.probabilities, dtype=np.float32), exact[image.id])
        assert len(set(image.tags)) == len(image.tags)


def test_all_images_are_tagged_if_asked_for():
    change_params(Path(), {"write_tags": {"images": "all"}})
    assert len(write().images) == len(WORLD)


def test_images_are_not_tagged_again(monkeypatch):
    write()
    first = TAGS.read_bytes()
    monkeypatch.delattr("fne.describing.write.search")
    write()
    assert TAGS.read_bytes() == first


def test_a_split_without_images_is_refused():
    write_captions(CAPTIONS, [replace(each, split="val") if each in TEST else each for each in WORLD])
    message = "write_tags.images is 'test', but features/embeddings has no row of such an image"
    assert message in refusal("train_tagger", "write_tags")


def test_a_tagger_that_was_trained_on_other_images_is_refused():
    first = next(record for record in WORLD if record.split == "train")
    write_captions(CAPTIONS, [replace(each, split="test") if each is first else each for each in WORLD])
    assert "was made from captions" in refusal("write_tags")


def test_inspect_and_verify_know_the_artifacts():
    write()

    def fne_prints(*words):
        result = CliRunner().invoke(fne, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    found = fne_prints("inspect", str(MODEL), str(TAGS))
    for text in (f"{MODEL}: tagger, ", "22 concepts", f"{TAGS}: ", "  made with"):
        assert text in found
    assert "no faults" in fne_prints("verify", str(MODEL), str(TAGS))
    flip(TAGS, 0.9)
    damaged = CliRunner().invoke(fne, ["verify", str(TAGS)])
    assert damaged.exit_code == 2
    assert "not a file of tags (its content does not match its seal)" in damaged.stderr
