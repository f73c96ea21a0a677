"""All kinds of artifacts; each stands beside the code that owns its format."""

from fne.datasets import rejects
from fne.describing import kinds as describing
from fne.evaluation import judgments_file
from fne.evaluation import kinds as evaluation
from fne.evaluation.ranks_file import RANKS
from fne.experiments import effective_settings
from fne.extraction.kinds import TEXT_NETWORK, WEIGHTS
from fne.features import standardize
from fne.matching import kinds as matching
from fne.probing import results as layers
from fne.report import kinds as report
from fne.sharing.published import PUBLISHED
from fne.store import catalog
from fne.store.arrays import arrays_kind
from fne.store.rows import STORE
from fne.text import caption_vectors, tokens, vocabulary, word_vectors

# The first that recognizes a path decides: what is known by its content or its name comes before endings.
KINDS = (
    STORE,
    PUBLISHED,
    tokens.FOLDER,
    matching.FOLDER,
    describing.WRITTEN,
    *catalog.KINDS,
    rejects.KIND,
    vocabulary.KIND,
    effective_settings.KIND,
    evaluation.BASELINE,
    evaluation.TRAINING,
    evaluation.TUNING,
    evaluation.TAG_METRICS,
    judgments_file.KIND,
    layers.KIND,
    evaluation.METRICS,
    arrays_kind(
        RANKS,
        standardize.LAYOUT,
        standardize.CAPTIONS_LAYOUT,
        tokens.LAYOUT,
        word_vectors.LAYOUT,
        caption_vectors.LAYOUT,
    ),
    describing.TAGGER,
    describing.TAGS,
    matching.CLASSIFIER,
    matching.TUNED,
    describing.DESCRIBING,
    matching.MODEL,
    report.HISTORY,
    report.PAGE,
)
# What artifacts are made from that is not an artifact itself.
SOURCES = (WEIGHTS, TEXT_NETWORK, word_vectors.VECTORS)
