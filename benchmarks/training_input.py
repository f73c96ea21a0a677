"""How long training waits for its input data."""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.flickr8k import BATCH, FEATURES, VOCABULARY, draw_captions, draw_embeddings
from benchmarks.timing import Ratio
from benchmarks.training_step import DIM, our_step
from fne.matching.data import PairDraw, Pairs
from fne.matching.model import Shape, new_matcher
from fne.store.catalog import Captioned
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows
from fne.text.tokens import read_tokens, write_tokens
from fne.training.row_source import StoreRows

CAPTIONS = 5


def training_input(
    images: int = 6000, features: int = FEATURES, dim: int = DIM, batch_size: int = BATCH
) -> Ratio:
    """Train one epoch over 6,000 stored images; the ratio is the fraction of time not spent on input."""
    shape = Shape(
        "linear",
        "gru",
        "cosine",
        False,
        features,
        VOCABULARY,
        dim,
        dim,
        text_encoder_settings={"initial": "torch"},
    )
    step = our_step(new_matcher(shape, seed=0))
    with tempfile.TemporaryDirectory() as folder:
        pairs = _draw_pairs(Path(folder), images, features)
        start = time.perf_counter()
        waited = 0.0
        requested = start
        batches = PairDraw(pairs.captioned, 0, batch_size, "one").batches(0)
        for batch in batches:
            data = pairs.source.read(batch.image_ids), *pairs.captions(batch.caption_ids)
            waited += time.perf_counter() - requested
            step(data)
            requested = time.perf_counter()
        total = time.perf_counter() - start
    print(f"{len(batches)} steps in {total:.1f} s, {waited:.2f} s of them for drawing and reading batches")
    fraction = 1 - waited / total
    return Ratio(fraction, fraction)


def tiny(folder: Path) -> None:
    """Run with little data."""
    training_input(images=20, features=64, dim=16, batch_size=8)


def _draw_pairs(folder: Path, images: int, features: int) -> Pairs:
    generator = np.random.default_rng(0)
    captioned = [
        Captioned(f"{number:06d}.jpg", "train", ("drawn",) * CAPTIONS, ()) for number in range(images)
    ]
    ids = [caption_id for record in captioned for caption_id in record.caption_ids]
    words = dict(zip(ids, map(list, draw_captions(generator, len(ids))), strict=True))
    write_tokens(folder / "tokens.h5", words, {}, {})
    shards = (
        (number, own, draw_embeddings(generator, len(own), features))
        for number, own in plan_shards([record.id for record in captioned], 4).items()
    )
    write_rows(folder / "embeddings", "embeddings", [Layer("all", features)], "ternary", shards, {}, {})
    rows = StoreRows(Rows.open(folder / "embeddings"))
    return Pairs(captioned, rows, read_tokens(folder / "tokens.h5"))
