from pathlib import Path

import pytest

from fne.describing.annotations import read_written
from tests.support.captions import write_world
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal

WRITTEN = Path("annotations/captions.jsonl")

pytestmark = pytest.mark.usefixtures("captioning_project")


def test_every_image_gets_sentences_which_are_not_searched_again(monkeypatch):
    assert invoke("write_captions").stdout == "captions of 64 images\n"
    written, artifact = read_written(WRITTEN)
    assert len(written) == 64
    assert {len(each.sentences) for each in written.values()} == {3}
    assert "captioner" in artifact.lineage
    assert artifact.sections == {"write_captions": {}}
    first = WRITTEN.read_bytes()
    monkeypatch.delattr("fne.describing.write.search")
    assert invoke("write_captions").exit_code == 0
    assert WRITTEN.read_bytes() == first


@pytest.mark.parametrize("images", ["val", "test"])
def test_only_the_images_of_a_split_if_asked_for(images):
    change_params(Path(), {"write_captions": {"images": images, "beam": 1}})
    assert invoke("write_captions").exit_code == 0
    assert len(read_written(WRITTEN)[0]) == 8


def test_a_captioner_of_other_embeddings_is_refused():
    write_world(Path(), noise=0.2)
    found = refusal("write_captions")
    assert "models/captioner.safetensors was made from embeddings " in found
    assert "but features/embeddings holds embeddings " in found
