import random

import pytest
import torch

from fne.core.errors import InputError
from fne.describing.model_file import read_describer, read_describer_file, write_describer
from fne.store.tensors import write_sealed
from tests.describing.test_model import ROWS, describer

LINEAGE = {"embeddings": {"digest": "ab", "settings": {}}}


def write(path, **changes):
    made = describer(**changes)
    digest = write_describer(path, "tagger", made, {"concepts": ["a", "b", "c", "d"]}, {"seed": 1}, LINEAGE)
    return made, digest


def test_a_describer_is_read_back_with_everything_that_was_written(tmp_path):
    made, digest = write(tmp_path / "m.safetensors", hints=2, hint_hidden=3)
    found, file = read_describer(tmp_path / "m.safetensors")
    assert found.shape == made.shape
    hints = torch.ones(7, 2)
    assert torch.equal(found.see(ROWS, hints).logits, made.see(ROWS, hints).logits)
    artifact = file.artifact
    assert (artifact.name, artifact.digest, artifact.settings) == ("tagger", digest, {"seed": 1})
    assert artifact.lineage == LINEAGE
    assert file.vocabulary == {"concepts": ["a", "b", "c", "d"]}
    assert file.weights.keys() == made.state_dict().keys()


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
    made = describer()
    with torch.no_grad():
        made.decoder.words = torch.nn.Parameter(torch.zeros(2, 2))
    write_describer(path, "tagger", made, {}, {}, {})
    with pytest.raises(InputError, match="not a tagger or captioner of fne"):
        read_describer(path)
