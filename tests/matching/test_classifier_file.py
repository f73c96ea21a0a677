import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.matching.classifier_file import FORMAT, read_classifier, write_classifier
from fne.matching.instance_loss import Classes, new_instance
from fne.matching.settings import InstanceLoss
from fne.store.artifact import Artifact
from fne.store.tensors import write_sealed

MODEL = Artifact("models/matching/model.safetensors", "model", "d" * 64, {"margin": [0.2]}, {})


def test_a_classifier_comes_back_with_the_classes_of_the_sorted_images(tmp_path):
    settings = InstanceLoss(classes=0, dropout=0.5, bias=True, bias_rate=2.0)
    loss = new_instance(3, 4, settings, seed=1)
    write_classifier(tmp_path / "c", Classes(loss, {"b.jpg": 2, "a.jpg": 0, "c.jpg": 1}), {"seed": 1}, MODEL)
    found = read_classifier(tmp_path / "c")
    assert np.array_equal(found.weight, loss.weight.detach().numpy())
    assert np.array_equal(found.bias, loss.bias.detach().numpy())
    assert found.labels.tolist() == [0, 2, 1]
    assert (found.artifact.name, found.artifact.settings) == ("classifier", {"seed": 1})
    assert found.artifact.lineage["model"]["digest"] == "d" * 64


def test_a_changed_bit_is_detected(tmp_path):
    loss = new_instance(3, 4, InstanceLoss(classes=0, dropout=0.5, bias=True, bias_rate=2.0), seed=0)
    write_classifier(tmp_path / "c", Classes(loss, {"a.jpg": 0}), {}, MODEL)
    content = bytearray((tmp_path / "c").read_bytes())
    content[60] ^= 1
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        read_classifier(tmp_path / "c")


def test_a_file_of_another_kind_is_refused(tmp_path):
    write_sealed(tmp_path / "c", {"format": "fne-model", "version": 2}, {})
    with pytest.raises(InputError, match="needs a version of fne that reads fne-model 2"):
        read_classifier(tmp_path / "c")
    write_sealed(tmp_path / "c", {"what": 1}, {})
    with pytest.raises(InputError, match="not a classifier of fne"):
        read_classifier(tmp_path / "c")


def test_a_class_beyond_the_classifier_is_refused(tmp_path):
    header = {**FORMAT.header(), "settings": {}, "lineage": {}}
    write_sealed(tmp_path / "c", header, {"weight": torch.zeros(2, 3), "labels": torch.tensor([0, 2])})
    with pytest.raises(InputError, match="has images of class 2, but 2 classes"):
        read_classifier(tmp_path / "c")
