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
from tests.support.projects import change_params
from tests.support.stages import invoke
from tests.support.tagging import CAPTIONS, EMBEDDINGS, scenes

TAGS, MODEL = Path("annotations/tags.jsonl"), Path("models/tagger.safetensors")
WORLD = scenes(60)

pytestmark = pytest.mark.usefixtures("tagging_project")


def write():
    result = invoke("write_tags")
    assert result.exit_code == 0, result.output
    return read_tagged(TAGS)


def test_the_images_of_a_split_are_tagged():
    found = write()
    assert [image.id for image in found.images] == sorted(each.id for each in WORLD if each.split == "test")
    assert found.artifact.lineage.keys() == {"captions", "embeddings", "tagger", "train_images"}
    top_k = load_section(Path("params.yaml"), "write_tags", WriteTags).top_k
    assert {len(image.top) for image in found.images} == {top_k}


def test_all_images_are_tagged_if_asked_for():
    change_params(Path(), {"write_tags": {"images": "all"}})
    assert len(write().images) == len(WORLD)


def test_probabilities_are_exactly_those_of_the_tagger():
    found = write()
    tagger, file = read_describing_model(MODEL, TAGGER)
    records = [each for each in WORLD if each.split == "test"]
    seen = Writer(tagger, file.vocabulary).tag_store(Rows.open(EMBEDDINGS), records).probabilities
    exact = {record.id: own for record, own in zip(records, seen, strict=True)}
    for image in found.images:
        np.testing.assert_array_equal(np.array(image.probabilities, dtype=np.float32), exact[image.id])


def test_no_tag_is_written_twice():
    for image in write().images:
        assert len(set(image.tags)) == len(image.tags)


def test_two_runs_give_the_same_bytes():
    write()
    first = TAGS.read_bytes()
    write()
    assert TAGS.read_bytes() == first


def test_images_are_not_tagged_again(monkeypatch):
    write()
    first = TAGS.read_bytes()
    monkeypatch.delattr("fne.describing.write.search")
    write()
    assert TAGS.read_bytes() == first


def test_a_split_without_images_is_refused():
    moved = [replace(record, split="val") if record.split == "test" else record for record in WORLD]
    write_captions(CAPTIONS, moved)
    invoke("train_tagger")
    result = invoke("write_tags")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: write_tags.images is 'test', but features/embeddings has no row of such an image "
        "of the catalog; use all, or see `catalog` in params.yaml\n",
    )


def test_a_tagger_that_was_trained_on_other_images_is_refused():
    first = next(record for record in WORLD if record.split == "train")
    moved = [replace(record, split="test") if record is first else record for record in WORLD]
    write_captions(CAPTIONS, moved)
    result = invoke("write_tags")
    assert result.exit_code == 2
    assert "was made from captions" in result.stderr


def test_inspect_and_verify_know_the_artifacts():
    write()

    def lines(*words):
        result = CliRunner().invoke(fne, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    found = lines("inspect", str(MODEL), str(TAGS))
    assert "models/tagger.safetensors: tagger, " in found
    assert "22 concepts" in found
    assert f"{TAGS}: " in found
    assert "  made with" in found
    assert "no faults" in lines("verify", str(MODEL), str(TAGS))
    content = bytearray(TAGS.read_bytes())
    content[-20] ^= 1
    TAGS.write_bytes(content)
    damaged = CliRunner().invoke(fne, ["verify", str(TAGS)])
    assert damaged.exit_code == 2
    assert "not a file of tags (its content does not match its seal)" in damaged.stderr
