from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.core.params import load_section
from fne.matching.settings import Train
from fne.matching.text_encoders import BIDIRECTIONAL

GOOD = """
train:
  seed: 0
  image_head: linear
  text_encoder: gru
  similarity: cosine
  absolute: false
  embed_dim: 8
  word_dim: 8
  batch: 2
  captions: one
  optimizer: adam
  clip: 2.0
  clip_by: global
  precision: float32
  validate_every: 0
  hardest: query
  top_k: 10
  loss: sum_hinge
  margin: 0.2
  learning_rate: 1e-3
  epochs: 3
  patience: 3
"""


def fault(tmp_path: Path, old: str, new: str) -> str:
    assert old in GOOD
    path = tmp_path / "params.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_section(path, "train", Train)
    return caught.value.message.removeprefix(f"{path}: section 'train': ")


def test_a_batch_of_one_is_refused(tmp_path):
    assert (
        fault(tmp_path, "batch: 2", "batch: 1") == "batch: input should be greater than or equal to 2, got 1"
    )


def test_an_unknown_loss_lists_the_known_ones(tmp_path):
    assert (
        fault(tmp_path, "sum_hinge", "hinge")
        == "loss: 'hinge' is not one of 'max_hinge', 'sum_hinge', 'top_k_hinge'"
    )


def test_an_unknown_loss_of_a_phase_lists_the_known_ones(tmp_path):
    assert (
        fault(tmp_path, "sum_hinge", "[sum_hinge, hinge]")
        == "loss: 'hinge' is not one of 'max_hinge', 'sum_hinge', 'top_k_hinge'"
    )


def test_lists_of_different_lengths_are_refused(tmp_path):
    changed = fault(
        tmp_path, "loss: sum_hinge\n  margin: 0.2", "loss: [sum_hinge, max_hinge]\n  margin: [1.0, 2.0, 3.0]"
    )
    assert changed == "lists of phases must have one value or equal lengths, but loss has 2, margin has 3"


def test_a_list_is_one_value_for_each_phase(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(GOOD.replace("sum_hinge", "[sum_hinge, max_hinge]"))
    assert [phase.loss for phase in load_section(path, "train", Train).phases()] == ["sum_hinge", "max_hinge"]


@pytest.mark.parametrize("encoder", sorted(BIDIRECTIONAL))
def test_an_odd_dimension_cannot_be_shared_by_two_directions(tmp_path, encoder):
    changed = fault(
        tmp_path,
        "text_encoder: gru\n  similarity: cosine\n  absolute: false\n  embed_dim: 8",
        f"text_encoder: {encoder}\n  similarity: cosine\n  absolute: false\n  embed_dim: 7",
    )
    assert changed == f"embed_dim must be even for '{encoder}', got 7"
