"""A small data set in which image and caption both say the same number."""

from pathlib import Path

import numpy as np
import pytest

from fne.matching.data import PairDraw, Pairs
from fne.store.catalog import Captioned
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from fne.text.tokens import read_tokens, write_tokens
from fne.training.row_source import StoreRows

WORDS = 12
FEATURES = 16


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    """Ten images with one to three captions each; words 0 and 1 are the same for all."""
    captioned = [Captioned(f"{number}.png", "train", ("x",) * (1 + number % 3), ()) for number in range(10)]
    generator = np.random.default_rng(0)
    rows = generator.choice([-1, 0, 1], (10, FEATURES)).astype(np.int8)
    shards = [(0, [record.id for record in captioned], rows)]
    write_rows(tmp_path / "embeddings", "embeddings", [Layer("all", FEATURES)], "ternary", shards, {}, {})
    words = {
        caption_id: [0] * position + [2 + number, 1]
        for number, record in enumerate(captioned)
        for position, caption_id in enumerate(record.caption_ids)
    }
    write_tokens(tmp_path / "tokens.h5", words, {}, {})
    rows = StoreRows(Rows.open(tmp_path / "embeddings"))
    return Pairs(captioned, rows, read_tokens(tmp_path / "tokens.h5"))


def draw_batches(pairs, seed, epoch, batch, captions, last_batch="keep"):
    """The batches of an epoch."""
    return PairDraw(pairs.captioned, seed, batch, captions, last_batch, pairs.source.views).batches(epoch)


class Doubled:
    """Pairs, or their rows, in float64."""

    def __init__(self, wrapped):
        self._wrapped = wrapped

    def __getattr__(self, name):
        return getattr(self._wrapped, name)

    @property
    def source(self):
        return Doubled(self._wrapped.source)

    def read(self, ids, views=None):
        return self._wrapped.read(ids, views).double()
