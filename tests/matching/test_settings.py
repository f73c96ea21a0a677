from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.core.settings import load_section
from fne.matching.hard_negatives import LossChoices
from fne.matching.settings import BIDIRECTIONAL, Train, require_positions
from fne.matching.task import RateFactors

GOOD = """
train:
  seed: 0
  threads: 2
  image_head: linear
  text_encoder: gru
  similarity: cosine
  absolute: false
  embed_dim: 8
  word_dim: 8
  words: learned
  batch: 2
  captions: one
  last_batch: keep
  negatives: other_images
  optimizer: adam
  clip: 2.0
  clip_by: global
  precision: float32
  validate_every: 0
  keep: best
  reduce: sum
  image_anchors: 1.0
  caption_anchors: 1.0
  loss: sum_hinge
  margin: 0.2
  rank_weight: 1.0
  image_class_weight: 0.0
  text_class_weight: 0.0
  rectified: false
  words_rate: 1.0
  classifier_rate: 1.0
  gain_rate: 1.0
  learning_rate: 1e-3
  epochs: 3
  patience: 3
  method: steps
  start: random
  rates: equal
  methods:
    cca: &closed
      dim: 512
      text: tfidf
      text_dim: 1500
      min_count: 3
      image_regularization: [0.03, 0.3, 3.0]
      text_regularization: [0.1, 0.3]
      power: [1.0, 2.0]
      choose_on: val
      holdout: 1000
      seed: 0
    ridge: *closed
  image_heads:
    mlp: &branch
      hidden: [512]
      dropout: 0.5
      batch_norm_momentum: 0.1
      batch_norm_epsilon: 1e-5
      initial: xavier
    mlp_bn_first: *branch
    dual_path: {hidden: [512], batch_norm_momentum: 0.05, batch_norm_epsilon: 0.001, initial: fan_in}
  text_encoders:
    bow_mlp: *branch
    bow_mlp_bn_first: *branch
    gru:
      initial: torch
    text_cnn:
      width: 0.125
      blocks: [3, 4, 6, 1]
      positions: 32
      shifts: 0
      pool: mean
      batch_norm_momentum: 0.05
      batch_norm_epsilon: 0.001
      initial: fan_in
  terms:
    instance: {classes: 0, dropout: 0.5, bias: false, bias_rate: 2.0}
  optimizers:
    rmsprop: {decay: 0.99, epsilon: 1e-8}
    rmsprop_inside: {decay: 0.999, epsilon: 1e-8, first: 0.0}
    sgd_nesterov:
      momentum: 0.9
      weight_decay: 0.0001
  losses:
    max_hinge:
      hardest: query
    top_k_hinge:
      hardest: query
      k: 10
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
        == "loss: 'hinge' is not one of 'hard_hinge', 'max_hinge', 'semi_hard_hinge', 'sum_hinge', 'top_k_hinge'"
    )


def test_an_unknown_loss_of_a_phase_lists_the_known_ones(tmp_path):
    assert (
        fault(tmp_path, "sum_hinge", "[sum_hinge, hinge]")
        == "loss: 'hinge' is not one of 'hard_hinge', 'max_hinge', 'semi_hard_hinge', 'sum_hinge', 'top_k_hinge'"
    )


def test_lists_of_different_lengths_are_refused(tmp_path):
    changed = fault(
        tmp_path, "loss: sum_hinge\n  margin: 0.2", "loss: [sum_hinge, max_hinge]\n  margin: [1.0, 2.0, 3.0]"
    )
    assert changed == "lists of phases must have one value or equal lengths, but loss has 2, margin has 3"


def test_a_list_is_one_value_for_each_phase(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(GOOD.replace("sum_hinge", "[sum_hinge, max_hinge]"))
    settings = load_section(path, "train", Train)
    assert settings.loss_titles() == ["sum_hinge", "max_hinge"]
    assert [objective.name for objective in settings.objectives()] == ["sum_hinge", "max_hinge"]
    assert [phase.epochs for phase in settings.schedule(settings.loss_titles()).phases] == [3, 3]


@pytest.mark.parametrize("encoder", sorted(BIDIRECTIONAL))
def test_an_odd_dimension_cannot_be_shared_by_two_directions(tmp_path, encoder):
    changed = fault(
        tmp_path,
        "text_encoder: gru\n  similarity: cosine\n  absolute: false\n  embed_dim: 8",
        f"text_encoder: {encoder}\n  similarity: cosine\n  absolute: false\n  embed_dim: 7",
    )
    assert changed == f"embed_dim must be even for '{encoder}', got 7"


def test_only_the_blocks_of_chosen_variants_apply(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(GOOD.replace("loss: sum_hinge", "loss: [sum_hinge, max_hinge]"))
    applied = load_section(path, "train", Train).applied()
    assert applied["losses"] == {"max_hinge": {"hardest": "query"}}
    assert (applied["text_encoders"], applied["optimizers"]) == ({"gru": {"initial": "torch"}}, {})


def test_a_key_in_a_block_of_a_variant_that_lacks_it_says_who_has_it(tmp_path):
    found = fault(
        tmp_path, "max_hinge:\n      hardest: query", "max_hinge:\n      hardest: query\n      k: 3"
    )
    assert found == "losses: max_hinge: has no key 'k'; 'top_k_hinge' has it"


def test_a_misspelled_key_in_a_block_gets_the_closest(tmp_path):
    found = fault(tmp_path, "max_hinge:\n      hardest: query", "max_hinge:\n      hardst: query")
    assert "max_hinge: unknown key 'hardst' (did you mean 'hardest'?)" in found
    assert (
        "missing 'max_hinge.hardest'; add these lines to the block:\n    max_hinge:\n      hardest: query"
        in found
    )


def test_a_wrong_value_in_a_block_is_named_with_its_place(tmp_path):
    assert fault(tmp_path, "k: 10", "k: 0") == (
        "losses: top_k_hinge.k: input should be greater than or equal to 1, got 0"
    )
    found = fault(tmp_path, "max_hinge:\n      hardest: query", "max_hinge:\n      hardest: worst")
    assert found == "losses: max_hinge.hardest: 'worst' is not one of 'candidate', 'query'"


def test_a_block_of_a_variant_without_keys_is_refused(tmp_path):
    found = fault(tmp_path, "  losses:\n", "  losses:\n    sum_hinge:\n      k: 1\n")
    assert found == "losses: 'sum_hinge' has no keys of its own: remove its block"


def test_an_unknown_block_lists_those_there_are(tmp_path):
    found = fault(tmp_path, "  losses:\n", "  losses:\n    hinge:\n      k: 1\n")
    assert found == "losses: 'hinge' is not one of 'max_hinge', 'top_k_hinge'"


def test_a_missing_key_says_what_to_add(tmp_path):
    assert fault(tmp_path, "  keep: best\n", "") == "missing key 'keep' (add `keep: best`)"


def test_without_anchors_nothing_would_be_learned(tmp_path):
    message = fault(
        tmp_path, "image_anchors: 1.0\n  caption_anchors: 1.0", "image_anchors: 0.0\n  caption_anchors: 0.0"
    )
    assert "image_anchors and caption_anchors are both 0, so nothing would be learned" in message


def test_a_phase_without_terms_would_learn_nothing(tmp_path):
    message = fault(
        tmp_path,
        "rank_weight: 1.0\n  image_class_weight: 0.0",
        "rank_weight: [1.0, 0.0]\n  image_class_weight: 0",
    )
    assert (
        "rank_weight, image_class_weight and text_class_weight are all 0 in phase 2, so nothing would be learned"
    ) in message


def test_rectified_and_absolute_exclude_each_other(tmp_path):
    text = "absolute: false"
    path = tmp_path / "params.yaml"
    path.write_text(GOOD.replace(text, "absolute: true").replace("rectified: false", "rectified: true"))
    with pytest.raises(InputError, match="rectified and absolute are both true; choose one of them"):
        load_section(path, "train", Train)


def test_phases_have_weights_and_rates_of_their_own(tmp_path):
    path = tmp_path / "params.yaml"
    changed = GOOD.replace("rank_weight: 1.0", "rank_weight: [0.0, 2.0]")
    changed = changed.replace("image_class_weight: 0.0", "image_class_weight: [1.0, 0.0]")
    changed = changed.replace("words_rate: 1.0", "words_rate: [0.01, 1.0]")
    path.write_text(changed.replace("classifier_rate: 1.0", "classifier_rate: 0.1"))
    settings = load_section(path, "train", Train)
    assert [(each.rank, each.image_classes, each.text_classes) for each in settings.objectives()] == [
        (0.0, 1.0, 0.0),
        (2.0, 0.0, 0.0),
    ]
    assert settings.rate_factors() == [RateFactors(0.01, 0.1, 1.0, 2.0), RateFactors(1.0, 0.1, 1.0, 2.0)]
    assert settings.loss_titles() == ["instance", "sum_hinge"]
    assert settings.has_instance_loss
    assert settings.applied()["terms"] == {
        "instance": {"classes": 0, "dropout": 0.5, "bias": False, "bias_rate": 2.0}
    }
    path.write_text(GOOD)
    assert load_section(path, "train", Train).applied()["terms"] == {}


def test_captions_longer_than_the_positions_of_a_text_cnn_are_refused(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(GOOD.replace("text_encoder: gru", "text_encoder: text_cnn"))
    settings = load_section(path, "train", Train)
    require_positions(settings, 32)
    with pytest.raises(InputError) as caught:
        require_positions(settings, 33)
    assert caught.value.message == (
        "a caption has 33 words, but text encoder 'text_cnn' has 32 positions; use -S tokenize.longest=32"
    )
    path.write_text(GOOD)
    require_positions(load_section(path, "train", Train), 33)


def test_objectives_have_the_choices_of_their_loss_and_of_all_losses(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(
        GOOD.replace("loss: sum_hinge", "loss: [top_k_hinge, semi_hard_hinge]")
        .replace("caption_anchors: 1.0", "caption_anchors: 0.1")
        .replace("reduce: sum", "reduce: mean_violating")
    )
    objectives = load_section(path, "train", Train).objectives()
    assert [each.choices for each in objectives] == [
        LossChoices("query", 10, "mean_violating", 1.0, 0.1),
        LossChoices("query", 1, "mean_violating", 1.0, 0.1),
    ]


def test_a_start_from_a_closed_form_names_every_part_that_it_needs(tmp_path):
    assert fault(tmp_path, "start: random", "start: cca") == (
        "start 'cca' needs image_head 'linear_bias' instead of 'linear', text_encoder 'tfidf' instead of 'gru'"
    )
    assert fault(tmp_path, "start: random", "start: zeros") == (
        "start: 'zeros' is not one of 'auto', 'cca', 'random', 'ridge'"
    )


def test_a_start_from_a_closed_form_applies_its_block_and_no_word_dim(tmp_path):
    path = tmp_path / "params.yaml"
    text = GOOD.replace("start: random", "start: cca").replace("linear\n", "linear_bias\n")
    path.write_text(text.replace("text_encoder: gru", "text_encoder: tfidf"))
    settings = load_section(path, "train", Train)
    applied = settings.applied()
    assert "word_dim" not in applied
    assert (applied["methods"]["cca"]["dim"], applied["methods"]["cca"]["text_dim"]) == (8, 1500)
    assert list(applied["methods"]) == ["cca"]
    assert (settings.shape(16, 12).word_dim, settings.shape(16, 12).embed_dim) == (9, 8)
    assert settings.given() == {"start": "cca", "cca.dim": None}


@pytest.mark.parametrize(
    ("encoder", "start"), [("text_encoder: tfidf", "cca"), ("text_encoder: gru", "random")]
)
def test_an_automatic_start_is_cca_where_the_model_has_the_parts_of_the_closed_form(tmp_path, encoder, start):
    path = tmp_path / "params.yaml"
    text = GOOD.replace("start: random", "start: auto").replace("linear\n", "linear_bias\n")
    path.write_text(text.replace("text_encoder: gru", encoder))
    settings = load_section(path, "train", Train)
    assert (settings.starts_from, settings.applied()["start"]) == (start, start)
    assert settings.given()["start"] == "auto"
    assert ("word_dim" in settings.applied()) == (start == "random")
