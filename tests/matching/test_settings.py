from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.core.settings import load_section
from fne.matching.hard_negatives import LossChoices
from fne.matching.model import shape_of
from fne.matching.settings import BIDIRECTIONAL, Train, require_positions
from fne.matching.task import RateFactors, objectives, rate_factors
from fne.training.run import schedule_of

GRU = {"start": "random", "image_head": "linear", "text_encoder": "gru", "embed_dim": 8}
CCA = {"start": "cca", "embed_dim": 8}


def fault(tmp_path: Path, keys: str) -> str:
    """Return what is wrong with a section that has only these keys."""
    path = tmp_path / "params.yaml"
    path.write_text(f"train: {{{keys}}}")
    with pytest.raises(InputError) as caught:
        load_section(path, "train", Train)
    return caught.value.message.removeprefix(f"{path}: section 'train': ")


@pytest.mark.parametrize("content", ["train: {}", "{}"])
def test_a_file_without_keys_has_valid_defaults(tmp_path, content):
    (tmp_path / "params.yaml").write_text(content)
    assert load_section(tmp_path / "params.yaml", "train", Train) == Train()


LOSSES = "'hard_hinge', 'info_nce', 'max_hinge', 'semi_hard_hinge', 'sum_hinge', 'top_k_hinge'"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("batch: 1", "batch: input should be greater than or equal to 2, got 1"),
        ("loss: hinge", f"loss: 'hinge' is not one of {LOSSES}"),
        ("loss: [sum_hinge, hinge]", f"loss: 'hinge' is not one of {LOSSES}"),
        ("loss: [sum_hinge, max_hinge], margin: [1.0, 2.0, 3.0]", "but loss has 2, margin has 3"),
        *((f"text_encoder: {each}, embed_dim: 7", f"even for '{each}', got 7") for each in BIDIRECTIONAL),
        # The block of a variant that is not chosen is checked, too.
        ("loss: sum_hinge, top_k_hinge: {k: 0}", "top_k_hinge.k: input should be greater than or equal to 1"),
        ("max_hinge: {hardst: query}", "'max_hinge.hardst' (did you mean 'max_hinge.hardest'?)"),
        ("max_hinge: {k: 3}", "unknown key 'max_hinge.k' (did you mean 'top_k_hinge.k'?)"),
        ("max_hinge: {hardest: worst}", "max_hinge.hardest: 'worst' is not one of 'candidate', 'query'"),
        ("sum_hinge: {k: 1}", "unknown key 'sum_hinge' (did you mean "),
        ("image_anchors: 0.0, caption_anchors: 0.0", "image_anchors and caption_anchors are both 0, so noth"),
        ("rank_weight: [1.0, 0.0]", "image_class_weight and text_class_weight are all 0 in phase 2, so noth"),
        (
            "start: random, absolute: true, rectified: true",
            "rectified and absolute are both true; choose one",
        ),
        (
            "start: cca, image_head: linear, text_encoder: gru",
            "start 'cca' needs image_head 'linear_bias' instead of 'linear', text_encoder 'tfidf' instead of 'gru'",
        ),
        ("start: zeros", "start: 'zeros' is not one of 'auto', 'cca', 'random', 'ridge'"),
    ],
)
def test_a_fault_is_named_with_its_place_and_what_is_allowed(tmp_path, lines, expected):
    assert expected in fault(tmp_path, lines)


def test_a_list_is_one_value_for_each_phase():
    settings = Train(loss=["sum_hinge", "max_hinge"], epochs=3)
    titles = [each.title for each in objectives(settings)]
    assert titles == [each.name for each in objectives(settings)] == ["sum_hinge", "max_hinge"]
    assert [phase.epochs for phase in schedule_of(settings, titles).phases] == [3, 3]


def test_only_the_blocks_of_chosen_variants_apply():
    applied = Train(**GRU, loss=["sum_hinge", "max_hinge"]).applied()
    blocks = {key: value for key, value in applied.items() if isinstance(value, dict)}
    assert blocks == {"max_hinge": {"hardest": "query"}, "gru": {"initial": "torch"}}


def test_all_faults_are_in_one_message(tmp_path):
    found = fault(tmp_path, "batch: 1, mlp: {dropout: 1.0}, marginn: 1")
    assert found.split("; ") == [
        "batch: input should be greater than or equal to 2, got 1",
        "mlp.dropout: input should be less than 1, got 1.0",
        "unknown key 'marginn' (did you mean 'margin'?)",
    ]


def test_phases_have_weights_and_rates_of_their_own():
    settings = Train(
        rank_weight=[0.0, 2.0], image_class_weight=[1.0, 0.0], words_rate=[0.01, 1.0], classifier_rate=0.1
    )
    assert [(each.rank, each.image_classes, each.text_classes) for each in objectives(settings)] == [
        (0.0, 1.0, 0.0),
        (2.0, 0.0, 0.0),
    ]
    assert rate_factors(settings) == [RateFactors(0.01, 0.1, 1.0, 2.0), RateFactors(1.0, 0.1, 1.0, 2.0)]
    assert [each.title for each in objectives(settings)] == ["instance", "sum_hinge"]
    assert settings.has_instance_loss
    assert settings.applied()["instance"] == {"classes": 0, "dropout": 0.5, "bias": False, "bias_rate": 2.0}
    assert "instance" not in Train().applied()


def test_captions_longer_than_the_positions_of_a_text_cnn_are_refused():
    settings = Train(text_encoder="text_cnn")
    require_positions(settings, 32)
    with pytest.raises(InputError, match="33 words, but .* has 32 positions; use -S .*longest=32"):
        require_positions(settings, 33)
    require_positions(Train(text_encoder="gru"), 33)


def test_objectives_have_the_choices_of_their_loss_and_of_all_losses():
    settings = Train(loss=["top_k_hinge", "semi_hard_hinge"], caption_anchors=0.1, reduce="mean_violating")
    assert [each.choices for each in objectives(settings)] == [
        LossChoices("query", 10, "mean_violating", 1.0, 0.1),
        LossChoices("query", 1, "mean_violating", 1.0, 0.1),
    ]


def test_a_start_from_a_closed_form_applies_its_block_and_no_word_dim():
    settings = Train(**CCA)
    applied = settings.applied()
    assert "word_dim" not in applied
    assert (applied["cca"]["dim"], applied["cca"]["text_dim"]) == (8, 1500)
    assert "dim" not in settings.effective()["cca"]
    assert "ridge" not in applied
    shape = shape_of(settings, 16, 12)
    assert (shape.word_dim, shape.embed_dim) == (9, 8)
    assert settings.given() == {"start": "cca", "cca.dim": None}


def test_of_a_closed_form_only_its_own_block_applies():
    assert Train(method="ridge").effective().keys() == {
        "method", "ridge", "image_head", "text_encoder", "similarity", "threads"
    }  # fmt: skip


@pytest.mark.parametrize(("encoder", "start"), [("tfidf", "cca"), ("gru", "random")])
def test_an_automatic_start_is_cca_where_the_model_has_the_parts_of_the_closed_form(encoder, start):
    settings = Train(start="auto", text_encoder=encoder)
    assert (settings.starts_from, settings.applied()["start"]) == (start, start)
    assert settings.given()["start"] == "auto"
    assert ("word_dim" in settings.applied()) == (start == "random")
