import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.describing.concepts import Concepts
from fne.describing.model import DescriberShape, new_describer
from fne.describing.model_file import (
    CAPTIONER,
    TAGGER,
    Vocabulary,
    read_describer,
    read_describer_file,
    write_describer,
)
from fne.store.tensors import write_sealed
from fne.text.caption_vocabulary import CaptionWords
from tests.describing.test_model import ROWS, describer

LINEAGE = {"embeddings": {"digest": "ab", "settings": {}}}
TAGS = Vocabulary(Concepts(["a", "b", "c", "d"], [4, 3, 2, 1], 5, 1.0, []), None, ["x", "y"])
WORDS = CaptionWords(["a", "dog", "</s>"], [3, 2, 1], 1, 2)
CAPTIONS = Vocabulary(Concepts(["a", "dog"], [2, 1], 2, 0.8, []), WORDS)
SHAPE = DescriberShape(4, "standardized", 2, 0, "concepts", WORDS.outputs, 5, 6, "lstm", "state")
HINTED = {"hints": 2, "hint_hidden": 3}


def write(path, **changes):
    made = describer(**HINTED | changes)
    return made, write_describer(path, made, TAGS, {"seed": 1}, LINEAGE)


def write_captioner(path, shape=SHAPE):
    write_describer(path, new_describer(shape, 0), CAPTIONS, {"seed": 3}, LINEAGE)
    return path


def test_a_describer_is_read_back_with_everything_that_was_written(tmp_path):
    made, digest = write(tmp_path / "m.safetensors")
    found, file = read_describer(tmp_path / "m.safetensors")
    assert found.shape == made.shape
    hints = torch.ones(7, 2)
    assert torch.equal(found.see(ROWS, hints).logits, made.see(ROWS, hints).logits)
    artifact = file.artifact
    assert (artifact.name, artifact.digest, artifact.settings) == (TAGGER, digest, {"seed": 1})
    assert artifact.lineage == LINEAGE
    assert file.vocabulary == TAGS
    assert file.weights.keys() == made.state_dict().keys()


def test_a_captioner_comes_back_with_its_words_and_concepts(tmp_path):
    captioner, file = read_describer(write_captioner(tmp_path / "c"), CAPTIONER)
    assert captioner.shape == SHAPE
    assert file.vocabulary == CAPTIONS
    assert (file.artifact.name, file.artifact.settings) == (CAPTIONER, {"seed": 3})
    assert isinstance(file.weights["decoder.words"], np.ndarray)


def test_equal_describers_have_equal_bytes(tmp_path):
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
            read_describer(path)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    write_sealed(path, {"format": "fne-model", "version": 2}, {"w": torch.zeros(1)})
    with pytest.raises(InputError) as caught:
        read_describer_file(path)
    assert caught.value.message == (
        f"{path}: needs a version of fne that reads fne-model 2; this one reads fne-describer up to 1"
    )
    write_sealed(path, {"format": "fne-describer", "version": 1}, {"w": torch.zeros(1)})
    with pytest.raises(InputError) as caught:
        read_describer(path)
    assert caught.value.message == (
        f"{path}: not a tagger or captioner of fne (KeyError('name')); "
        f"run `fne verify {path}` to see how to repair it"
    )


def test_weights_that_do_not_fit_the_shape_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    made = describer(**HINTED)
    with torch.no_grad():
        made.decoder.words = torch.nn.Parameter(torch.zeros(2, 2))
    write_describer(path, made, TAGS, {}, {})
    assert read_describer_file(path).vocabulary == TAGS
    with pytest.raises(InputError, match="not a tagger or captioner of fne"):
        read_describer(path)


@pytest.mark.parametrize("changes", [{"outputs": 9}, {"concepts": 3}])
def test_words_or_concepts_that_do_not_fit_the_shape_are_refused(tmp_path, changes):
    path = write_captioner(tmp_path / "c", replace(SHAPE, **changes))
    with pytest.raises(InputError) as error:
        read_describer_file(path)
    assert error.value.message == (
        f"{path}: not a tagger or captioner of fne "
        "(ValueError('its words, concepts or hints do not fit its shape')); "
        f"run `fne verify {path}` to see how to repair it"
    )


def test_hints_that_do_not_fit_the_shape_are_refused(tmp_path):
    write(tmp_path / "t", hints=3)
    with pytest.raises(InputError, match="its words, concepts or hints do not fit its shape"):
        read_describer_file(tmp_path / "t")


def test_a_captioner_is_no_tagger(tmp_path):
    path = write_captioner(tmp_path / "c")
    with pytest.raises(InputError) as error:
        read_describer_file(path, TAGGER)
    assert error.value.message == (
        f"{path}: is a captioner, not a tagger; run `dvc repro pipelines/tagging/dvc.yaml`"
    )
