import numpy as np
import pytest

from fne.core.errors import InputError
from fne.describing.captioning.model_file import (
    read_captioner,
    read_captioner_file,
    vocabulary,
    write_captioner,
)
from fne.describing.concepts import Concepts
from fne.describing.model import DescriberShape, new_describer
from fne.describing.model_file import write_describer
from fne.text.caption_vocabulary import CaptionWords

WORDS = CaptionWords(["a", "dog", "</s>"], [3, 2, 1], 1, 2)
CONCEPTS = Concepts(["a", "dog"], [2, 1], 2, 0.8, [])
SHAPE = DescriberShape(4, "standardized", 2, 0, "concepts", WORDS.outputs, 5, 6, "lstm", "state")
LINEAGE = {"captions": {"digest": "a", "settings": {}}}


def write(path, shape=SHAPE):
    write_captioner(path, new_describer(shape, 0), WORDS, CONCEPTS, {"seed": 3}, LINEAGE)
    return path


def test_a_captioner_comes_back_with_its_words_and_concepts(tmp_path):
    captioner, file = read_captioner(write(tmp_path / "c"))
    assert captioner.shape == SHAPE
    assert vocabulary(file) == (WORDS, CONCEPTS)
    assert (file.artifact.name, file.artifact.settings) == ("captioner", {"seed": 3})
    assert isinstance(read_captioner_file(tmp_path / "c").weights["decoder.words"], np.ndarray)


def test_equal_captioners_give_equal_bytes(tmp_path):
    assert write(tmp_path / "1").read_bytes() == write(tmp_path / "2").read_bytes()


def test_words_that_do_not_fit_the_weights_are_refused(tmp_path):
    path = write(tmp_path / "c", DescriberShape(4, "raw", 2, 0, "concepts", 9, 5, 6, "gru", "state"))
    with pytest.raises(InputError) as error:
        read_captioner(path)
    assert error.value.message == (
        f"{path}: not a captioner of fne (ValueError('its words or concepts do not fit its shape')); "
        f"run `fne verify {path}` to see how to repair it"
    )


def test_a_tagger_is_no_captioner(tmp_path):
    write_describer(tmp_path / "t", "tagger", new_describer(SHAPE, 0), {}, {}, LINEAGE)
    with pytest.raises(InputError) as error:
        read_captioner_file(tmp_path / "t")
    assert error.value.message == f"{tmp_path / 't'}: expected a captioner, found a tagger"
