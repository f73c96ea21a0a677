import pytest
from ruamel.yaml import YAML

from fne.core.settings import parse_section
from fne.describing.model import CONDITIONS, DescribingShape
from fne.describing.settings import TrainCaptioner, TrainTagger, WriteCaptions, WriteTags
from fne.evaluation.protocols import ScoreCaptions, ScoreTags
from tests.support.imports import ROOT
from tests.support.tagging import settings

PARAMS = YAML(typ="safe").load(ROOT / "params.yaml")


def faults(**changes):
    section = {"train_captioner": PARAMS["train_captioner"] | changes}
    return parse_section(section, "train_captioner", TrainCaptioner)[1]


def test_the_shipped_sections_are_valid():
    assert faults() == []
    assert parse_section(PARAMS, "write_captions", WriteCaptions)[1] == []
    assert parse_section(PARAMS, "write_tags", WriteTags)[1] == []
    assert parse_section(PARAMS, "score_captions", ScoreCaptions)[1] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"condition": "hidden", "learns": "jointly"},
            "condition 'hidden' needs concept_head 'hidden': a linear one has no hidden layer",
        ),
        ({"concept_loss": "none"}, "learns 'separately' needs a concept_loss, which is 'none'"),
        (
            {"condition": "hidden", "concept_head": "hidden"},
            "learns 'separately' trains the decoder from true concepts, but condition is 'hidden'; "
            "use 'concept_head' and then 'jointly'",
        ),
        (
            {"condition": "embedding", "learns": ["concept_head", "jointly"]},
            "learns 'concept_head' has no effect on captions, because condition is 'embedding'",
        ),
        (
            {"learns": ["jointly", "concept_head"]},
            "the last phase learns only the concept head; the decoder must be trained, too",
        ),
        ({"cell": "lstmm"}, "cell: 'lstmm' is not one of 'gru', 'lstm', 'lstm_relu', 'rnn_relu'"),
        (
            {"epochs": [1, 2, 3]},
            "lists of phases must have one value or equal lengths, but learns has 2, epochs has 3",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(changes, message):
    assert faults(**changes) == [message]


def test_blocks_of_variants_that_are_not_chosen_do_not_apply():
    section = PARAMS["train_captioner"] | {"cell": "gru"}
    found = parse_section({"train_captioner": section}, "train_captioner", TrainCaptioner)[0]
    applied = found.applied()
    assert (applied["cells"], applied["concept_heads"]) == ({}, {})
    assert list(applied["concept_sources"]) == ["words"]
    assert found.forget_bias == 0.0


def test_a_captioner_from_the_embedding_alone_has_no_concept_head():
    changes = {"condition": "embedding", "concept_loss": "none", "learns": "jointly"}
    found = parse_section(
        {"train_captioner": PARAMS["train_captioner"] | changes}, "train_captioner", TrainCaptioner
    )[0]
    assert found.shape(10, 5, 7).concepts == 0
    assert CONDITIONS["embedding"].width(found.shape(10, 5, 7)) == 10


def tagger_faults(**changes):
    return parse_section({"train_tagger": PARAMS["train_tagger"] | changes}, "train_tagger", TrainTagger)[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "lstmm"}, "cell: 'lstmm' is not one of 'gru', 'lstm', 'lstm_relu', 'rnn_relu'"),
        (
            {"condition": "hidden"},
            "condition 'hidden' needs concept_head 'hidden': a linear one has no hidden layer",
        ),
        (
            {"concept_loss": "none", "learns": "concept_head"},
            "learns 'concept_head' needs a concept_loss, which is 'none'",
        ),
        ({"concept_loss": "none"}, "learns 'separately' needs a concept_loss, which is 'none'"),
        (
            {"condition": "embedding"},
            "learns 'separately' trains the decoder from true concepts, but condition is 'embedding'; "
            "use 'concept_head' and then 'jointly'",
        ),
        (
            {"learns": ["jointly", "concept_head"]},
            "the last phase learns only the concept head; train the decoder last, or never",
        ),
        (
            {"condition": "embedding", "concept_loss": "none", "learns": "jointly", "user_tags": "user"},
            "user tags add to concepts, which condition 'embedding' without a concept_loss lacks",
        ),
        (
            {"epochs": [1, 2, 3]},
            "lists of phases must have one value or equal lengths, but learns has 2, epochs has 3",
        ),
        ({"dropout": 1.0}, "dropout: input should be less than 1, got 1.0"),
        ({"order": "random"}, "order: 'random' is not one of 'frequent_first', 'rare_first'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_a_sentence(changes, message):
    assert tagger_faults(**changes) == [message]


def test_the_shape_has_the_parts_that_the_settings_train():
    assert settings().shape(7, 3, 4) == DescribingShape(
        7,
        "standardized",
        3,
        0,
        "concepts",
        4,
        PARAMS["train_tagger"]["word_dim"],
        PARAMS["train_tagger"]["units"],
        "lstm_relu",
        "state",
    )
    assert settings(learns="concept_head").shape(7, 3, 4).outputs == 0
    plain = settings(condition="embedding", concept_loss="none", learns="jointly")
    assert plain.shape(7, 3, 4).concepts == 0
    reader = settings(user_tags="user", concept_head="hidden").shape(7, 3, 4, 5)
    assert (reader.user_tags, reader.user_tag_hidden, reader.user_tag_sum, reader.hidden) == (
        5,
        256,
        "logits",
        512,
    )


def test_only_blocks_of_chosen_variants_apply():
    applied = settings().applied()
    assert applied["cells"] == {"lstm_relu": {"forget_bias": 1.0}}
    assert applied["concept_sources"] == {"tags": {"min_images": 1}}
    assert (applied["concept_heads"], applied["user_tag_readers"], applied["optimizers"]) == ({}, {}, {})
    assert settings(cell="gru").applied()["cells"] == {}
    assert settings(cell="gru").forget_bias == 0.0


def test_a_threshold_is_a_probability():
    found = parse_section({"score_tags": PARAMS["score_tags"] | {"threshold": 1.0}}, "score_tags", ScoreTags)[
        1
    ]
    assert found == ["threshold: input should be less than 1, got 1.0"]
