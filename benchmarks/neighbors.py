"""Dot products of a ternary query with all rows, by which the server finds look-alikes."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.flickr8k import FEATURES, draw_embeddings
from benchmarks.timing import Ratio, compare, print_table, ratio
from fne.search.bit_kernels import ternary_products
from fne.store.layout import pack

ONE, BATCH, OURS = "float32 product, one query", "float32 product, 128 queries at once", "ours: bit planes"


def neighbors(rows: int = 30_000, features: int = FEATURES, queries: int = 128, rounds: int = 5) -> Ratio:
    """Multiply ternary queries, one by one, with 30,000 rows of 12,416, compared with a float32 product.

    The product with many queries at once is shown too; the server has one query at a time.
    """
    generator = np.random.default_rng(0)
    stored, asked = (draw_embeddings(generator, count, features) for count in (rows, queries))
    planes, asked_planes = pack(stored), pack(asked)
    floats, asked_floats = torch.from_numpy(stored).float(), torch.from_numpy(asked).float()
    few = max(1, queries // 16)  # the others take as long
    expected = (floats @ asked_floats[0]).numpy()
    assert np.array_equal(ternary_products(planes, asked_planes[0]), expected)
    seconds = compare(
        {
            ONE: lambda: [floats @ each for each in asked_floats[:few]],
            BATCH: lambda: floats @ asked_floats.T,
            OURS: lambda: [ternary_products(planes, each) for each in asked_planes[:few]],
        },
        rounds,
    )
    seconds[BATCH] = [each * few / queries for each in seconds[BATCH]]
    print_table(seconds, ONE, "queries", few)
    return ratio(seconds, OURS, ONE)


def tiny(folder: Path) -> None:
    """Run with little data."""
    neighbors(rows=40, features=100, queries=4, rounds=1)
