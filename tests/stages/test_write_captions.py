from pathlib import Path

import pytest

from fne.describing.annotations import read_written
from tests.support.captions import write_world
from tests.support.projects import change_params
from tests.support.stages import invoke

WRITTEN = Path("annotations/captions.jsonl")

pytestmark = pytest.mark.usefixtures("captioning_project")


def write():
    return invoke("write_captions")


def test_every_image_gets_sentences():
    result = write()
    assert (result.exit_code, result.stdout) == (0, "captions of 64 images\n"), result.output
    written, artifact = read_written(WRITTEN)
    assert len(written) == 64
    assert {len(each.sentences) for each in written.values()} == {3}
    assert "captioner" in artifact.lineage
    assert artifact.sections == {"write_captions": {}}


def test_equal_inputs_give_equal_bytes():
    write()
    first = WRITTEN.read_bytes()
    write()
    assert WRITTEN.read_bytes() == first


def test_sentences_are_not_searched_again(monkeypatch):
    write()
    first = WRITTEN.read_bytes()
    monkeypatch.delattr("fne.describing.write.search")
    result = write()
    assert result.exit_code == 0, result.output
    assert WRITTEN.read_bytes() == first


@pytest.mark.parametrize("images", ["val", "test"])
def test_only_the_images_of_a_split_if_asked_for(images):
    change_params(Path(), {"write_captions": {"images": images, "beam": 1}})
    assert write().exit_code == 0
    assert len(read_written(WRITTEN)[0]) == 8


def test_a_captioner_of_other_embeddings_is_refused():
    write_world(Path(), noise=0.2)
    result = write()
    assert result.exit_code == 2
    assert "models/captioner.safetensors was made from embeddings " in result.stderr
    assert "but features/embeddings holds embeddings " in result.stderr
