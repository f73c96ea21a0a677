"""Settings say the names of variants, and other modules, which import torch, say what they are."""

import pytest

from fne.core.distributed_layers import INITIALIZATIONS
from fne.datasets.readers import READERS
from fne.describing import data as sequences
from fne.describing.concept_head import ROWS as STANDARDIZED
from fne.describing.concept_head import USER_TAG_SUMS
from fne.describing.concepts import CONCEPT_SOURCES, ORDERS
from fne.describing.decoder import INJECTIONS
from fne.describing.losses import MULTILABEL_LOSSES
from fne.describing.model import CONDITIONS
from fne.describing.recurrent_cells import CELLS
from fne.evaluation.protocols import PROTOCOLS
from fne.experiments.effective_settings import SECTIONS
from fne.extraction import extractor
from fne.extraction.layers import TAPS
from fne.extraction.networks import BACKBONES
from fne.extraction.preprocess import CROPS, RESIZES
from fne.extraction.run import COMPUTERS
from fne.extraction.settings import ALGORITHM_NAMES, INPUTS
from fne.features.embeddings import EMBEDDINGS, ROWS, THRESHOLDS
from fne.matching import closed_form, methods, model
from fne.matching.data import DRAWS
from fne.matching.hard_negatives import AXES, MINERS, REDUCTIONS
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.settings import INFO_NCE
from fne.matching.similarities import SIMILARITIES
from fne.matching.task import RATES
from fne.matching.text_cnn import POOLS
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.text.caption_vocabulary import CUTS as CAPTION_CUTS
from fne.text.tokenizer import CUTS
from fne.text.word_vectors import RULES
from fne.training.optimizers import CLIPS, OPTIMIZERS
from tests.support.parameters import names_allowed

TRAINED = {"optimizer": OPTIMIZERS, "clip_by": CLIPS}
DESCRIBING = TRAINED | {
    "rows": STANDARDIZED,
    "concept_loss": [*MULTILABEL_LOSSES, "none"],
    "concepts": CONCEPT_SOURCES,
    "condition": CONDITIONS,
    "inject": INJECTIONS,
    "cell": CELLS,
}
BRANCH = {"initial": INITIALIZATIONS}
# The names that a key allows: those of the family with the functions, by section or class.
FAMILIES = {
    "catalog": {"format": ["auto", *READERS]},
    "extract": {
        "backbone": [*BACKBONES, "timm/NAME"],
        "resize": RESIZES,
        "crops": CROPS,
        "precision": extractor.PRECISIONS,
        "input": ["auto", *INPUTS],
    },
    "embed": {"kind": EMBEDDINGS, "rows": ROWS, "thresholds": THRESHOLDS},
    "embed_text": {"kind": EMBEDDINGS, "rows": ROWS, "thresholds": THRESHOLDS},
    "tokenize": {"cut": CUTS, "without_vector": RULES},
    "train": TRAINED
    | {
        "method": methods.METHODS,
        "start": ["auto", "random", *closed_form.METHODS],
        "image_head": IMAGE_HEADS,
        "text_encoder": TEXT_ENCODERS,
        "similarity": SIMILARITIES,
        "loss": [*MINERS, INFO_NCE],
        "captions": DRAWS,
        "precision": model.PRECISIONS,
        "rates": RATES,
        "reduce": REDUCTIONS,
    },
    "train.mlp": BRANCH,
    "train.mlp_bn_first": BRANCH,
    "train.bow_mlp": BRANCH,
    "train.bow_mlp_bn_first": BRANCH,
    "train.rows_mlp": BRANCH,
    "train.rows_mlp_bn_first": BRANCH,
    "train.dual_path": BRANCH,
    "train.text_cnn": BRANCH | {"pool": POOLS},
    "train.max_hinge": {"hardest": AXES},
    "train.top_k_hinge": {"hardest": AXES},
    "evaluate": {"protocol": PROTOCOLS},
    "train_tagger": DESCRIBING | {"order": ORDERS},
    "train_tagger.user": {"sum": USER_TAG_SUMS},
    "tune_captioner": TRAINED,
    "tune_tagger": TRAINED,
    "train_captioner": DESCRIBING | {"captions": sequences.DRAWS, "cut": CAPTION_CUTS},
    "runtime": {"engine": COMPUTERS},
}
# Keys with a few fixed values, which code compares.
CHOICES = {
    "activations", "captions", "choose_on", "concept_bias", "concept_head", "device", "hardest", "images", "initial",
    "input_activation", "keep",
    "last_batch", "learns", "meteor", "missing_store", "negatives", "output_bias", "restval", "select",
    "positives", "source", "split", "stop_words", "text", "tokens", "user_tags", "views", "vocabulary", "words",
}  # fmt: skip
SCHEMAS = SECTIONS | {
    f"{name}.{block}": nested
    for name, schema in SECTIONS.items()
    for block, nested in schema.nested().items()
}


@pytest.mark.parametrize("place", SCHEMAS)
def test_every_name_that_settings_allow_is_one_of_its_family(place):
    schema, families = SCHEMAS[place], FAMILIES.get(place, {})
    allowed = {key: set(names_allowed(schema, key)) for key in schema.model_fields}
    named = {key: names for key, names in allowed.items() if names and key not in CHOICES - families.keys()}
    assert named == {key: set(family) for key, family in families.items()}


def test_every_algorithm_and_network_of_the_extraction_is_in_the_settings():
    assert set(ALGORITHM_NAMES) == set(extractor.ALGORITHMS)
    assert set(BACKBONES) == set(TAPS)
