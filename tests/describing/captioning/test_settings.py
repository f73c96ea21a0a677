import pytest
from ruamel.yaml import YAML

from fne.core.params import parse_section
from fne.describing.captioning.settings import Caption, TrainCaptioner
from fne.describing.model import CONDITIONS
from tests.support.imports import ROOT

PARAMS = YAML(typ="safe").load(ROOT / "params.yaml")


def faults(**changes):
    section = {"train_captioner": PARAMS["train_captioner"] | changes}
    return parse_section(section, "train_captioner", TrainCaptioner)[1]


def test_the_shipped_sections_are_valid():
    assert faults() == []
    assert parse_section(PARAMS, "caption", Caption)[1] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"condition": "hidden", "learns": "joint"},
            "condition 'hidden' needs recognizer 'hidden': a linear one has no hidden layer",
        ),
        ({"concept_loss": "none"}, "learns 'apart' needs a concept_loss, which is 'none'"),
        (
            {"condition": "hidden", "recognizer": "hidden"},
            "learns 'apart' trains the decoder from true concepts, but condition is 'hidden'; "
            "use 'recognizer' and then 'joint'",
        ),
        (
            {"condition": "embedding", "learns": ["recognizer", "joint"]},
            "learns 'recognizer' has no effect on captions, because condition is 'embedding'",
        ),
        (
            {"learns": ["joint", "recognizer"]},
            "the last phase learns only the recognizer; the decoder must be trained, too",
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
    assert (applied["cells"], applied["recognizers"]) == ({}, {})
    assert list(applied["concept_sources"]) == ["words"]
    assert found.forget_bias == 0.0


def test_a_captioner_from_the_embedding_alone_has_no_recognizer():
    changes = {"condition": "embedding", "concept_loss": "none", "learns": "joint"}
    found = parse_section(
        {"train_captioner": PARAMS["train_captioner"] | changes}, "train_captioner", TrainCaptioner
    )[0]
    assert found.shape(10, 5, 7).concepts == 0
    assert CONDITIONS["embedding"].width(found.shape(10, 5, 7)) == 10
