import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.describing.concepts import Concepts
from fne.describing.model import DescribingShape, new_describing_model
from fne.describing.model_file import (
    Vocabulary,
    read_describing_file,
    read_describing_model,
    write_describing_model,
)
from fne.describing.settings import CAPTIONER, TAGGER
from fne.store.tensors import write_sealed
from fne.text.caption_vocabulary import CaptionWords
from tests.describing.test_model import ROWS, small_model

LINEAGE = {"embeddings": {"digest": "ab", "settings": {}}}
TAGS = Vocabulary(Concepts(["a", "b", "c", "d"], [4, 3, 2, 1], 5, 1.0, []), None, ["x", "y"])
WORDS = CaptionWords(["a", "dog", "</s>"], [3, 2, 1], 1, 2)
CAPTIONS = Vocabulary(Concepts(["a", "dog"], [2, 1], 2, 0.8, []), WORDS)
SHAPE = DescribingShape(4, "standardized", 2, 0, "concepts", WORDS.outputs, 5, 6, "lstm", "state")
READS_USER_TAGS = {"user_tags": 2, "user_tag_hidden": 3}


def write(path, **changes):
    made = small_model(**READS_USER_TAGS | changes)
    return made, write_describing_model(path, made, TAGS, {"seed": 1}, LINEAGE)


def write_captioner(path, shape=SHAPE):
    write_describing_model(path, new_describing_model(shape, 0), CAPTIONS, {"seed": 3}, LINEAGE)
    return path


def test_a_describing_model_is_read_back_with_everything_that_was_written(tmp_path):
    made, digest = write(tmp_path / "m.safetensors")
    found, file = read_describing_model(tmp_path / "m.safetensors")
    assert found.shape == made.shape
    user_tags = torch.ones(7, 2)
    assert torch.equal(found.see(ROWS, user_tags).logits, made.see(ROWS, user_tags).logits)
    artifact = file.artifact
    assert (artifact.name, artifact.digest, artifact.settings) == (TAGGER, digest, {"seed": 1})
    assert artifact.lineage == LINEAGE
    assert file.vocabulary == TAGS
    assert file.weights.keys() == made.state_dict().keys()


def test_a_captioner_comes_back_with_its_words_and_concepts(tmp_path):
    captioner, file = read_describing_model(write_captioner(tmp_path / "c"), CAPTIONER)
    assert captioner.shape == SHAPE
    assert file.vocabulary == CAPTIONS
    assert (file.artifact.name, file.artifact.settings) == (CAPTIONER, {"seed": 3})
    assert isinstance(file.weights["decoder.words"], np.ndarray)


def test_equal_describing_models_have_equal_bytes(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_changed_bit_is_detected_anywhere(tmp_path):
    path = tmp_path / "m.safetensors"
    write(path)
    content = path.read_bytes()
    for place in random.Random(0).sample(range(len(content)), 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(InputError, match=r"m\.safetensors: "):
            read_describing_model(path)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    write_sealed(path, {"format": "fne-model", "version": 2}, {"w": torch.zeros(1)})
    with pytest.raises(InputError, match="needs a version of fne that reads fne-model 2"):
        read_describing_file(path)
    write_sealed(path, {"format": "fne-describing", "version": 1}, {"w": torch.zeros(1)})
    with pytest.raises(InputError, match="m.safetensors: not a tagger or captioner .* run `fne verify"):
        read_describing_model(path)


def test_weights_that_do_not_fit_the_shape_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    made = small_model(**READS_USER_TAGS)
    with torch.no_grad():
        made.decoder.words = torch.nn.Parameter(torch.zeros(2, 2))
    write_describing_model(path, made, TAGS, {}, {})
    assert read_describing_file(path).vocabulary == TAGS
    with pytest.raises(InputError, match="not a tagger or captioner of fne"):
        read_describing_model(path)


@pytest.mark.parametrize("changes", [{"outputs": 9}, {"concepts": 3}, {"user_tags": 3}])
def test_words_concepts_or_user_tags_that_do_not_fit_the_shape_are_refused(tmp_path, changes):
    if "user_tags" in changes:
        write(tmp_path / "c", **changes)
    else:
        write_captioner(tmp_path / "c", replace(SHAPE, **changes))
    with pytest.raises(InputError, match="its words, concepts or user tags do not fit its shape"):
        read_describing_file(tmp_path / "c")


def test_a_captioner_is_no_tagger(tmp_path):
    path = write_captioner(tmp_path / "c")
    with pytest.raises(InputError, match="c: is a captioner, not a tagger; run `dvc repro pipelines/tagging"):
        read_describing_file(path, TAGGER)
