import pytest

from fne.core.settings import load_section, parse_section
from fne.describing.model import DescribingShape, shape_of
from fne.describing.settings import TrainCaptioner, TrainTagger, WriteCaptions, WriteTags
from fne.evaluation.protocols import ScoreCaptions, ScoreTags
from tests.support.imports import ROOT
from tests.support.tagging import settings

BOTH, CAPTIONS, TAGS = ("captioner", "tagger"), ("captioner",), ("tagger",)
SCHEMAS = {"captioner": TrainCaptioner, "tagger": TrainTagger}


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("train_captioner", TrainCaptioner),
        ("write_captions", WriteCaptions),
        ("score_captions", ScoreCaptions),
        ("train_tagger", TrainTagger),
        ("write_tags", WriteTags),
        ("score_tags", ScoreTags),
    ],
)
def test_the_shipped_sections_have_the_default_values(name, schema):
    assert load_section(ROOT / "params.yaml", name, schema) == schema()


@pytest.mark.parametrize(
    ("models", "changes", "message"),
    [
        (BOTH, {"condition": "hidden", "learns": "jointly"}, "condition 'hidden' needs concept_head 'hidden'"),
        (BOTH, {"concept_loss": "none"}, "learns 'separately' needs a concept_loss, which is 'none'"),
        (
            BOTH, {"condition": "hidden", "concept_head": "hidden"},
            "learns 'separately' trains the decoder from true concepts, but condition is 'hidden'; "
            "use 'concept_head' and then 'jointly'",
        ),
        (
            CAPTIONS, {"condition": "embedding", "learns": ["concept_head", "jointly"]},
            "learns 'concept_head' has no effect on captions, because condition is 'embedding'",
        ),
        (CAPTIONS, {"learns": ["jointly", "concept_head"]}, "only the concept head; the decoder must be trained, too"),
        (TAGS, {"learns": ["jointly", "concept_head"]}, "only the concept head; train the decoder last, or never"),
        (
            TAGS, {"condition": "embedding", "concept_loss": "none", "learns": "jointly", "user_tags": "user"},
            "user tags add to concepts, which condition 'embedding' without a concept_loss lacks",
        ),
        (BOTH, {"cell": "lstmm"}, "cell: 'lstmm' is not one of 'gru', 'lstm', 'lstm_relu', 'rnn_relu'"),
        (BOTH, {"epochs": [1, 2, 3]}, "lists of phases must have one value or equal lengths, but learns has 2"),
        (TAGS, {"dropout": 1.0}, "dropout: input should be less than 1, got 1.0"),
        (TAGS, {"order": "random"}, "order: 'random' is not one of 'frequent_first', 'rare_first'"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_with_a_sentence(models, changes, message):
    for model in models:
        _, (fault,) = parse_section({f"train_{model}": changes}, f"train_{model}", SCHEMAS[model])
        assert message in fault


def test_the_shape_has_the_parts_that_the_settings_train():
    assert shape_of(settings(), 7, 3, 4) == DescribingShape(
        7, "standardized", 3, 0, "concepts", 4, 32, 128, "lstm_relu", "state"
    )
    assert shape_of(settings(learns="concept_head"), 7, 3, 4).outputs == 0
    plain = settings(condition="embedding", concept_loss="none", learns="jointly")
    assert shape_of(plain, 7, 3, 4).concepts == 0
    reader = shape_of(settings(user_tags="user", concept_head="hidden"), 7, 3, 4, 5)
    sizes = reader.user_tags, reader.user_tag_hidden, reader.user_tag_sum, reader.hidden
    assert sizes == (5, 256, "logits", 512)


def test_only_blocks_of_chosen_variants_apply():
    blocks = {key: value for key, value in settings().applied().items() if isinstance(value, dict)}
    assert blocks == {"lstm_relu": {"forget_bias": 1.0}, "tags": {"min_images": 1}}
    assert not {"lstm", "lstm_relu"} & settings(cell="gru").applied().keys()
    assert settings(cell="gru").forget_bias == 0.0
