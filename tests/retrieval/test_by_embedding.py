from pathlib import Path

import numpy as np
import pytest

from fne.features.neighbors import ternary_scores
from fne.retrieval import by_embedding
from fne.retrieval.by_embedding import ternary_products
from fne.retrieval.pools import Pool
from fne.store.layout import TERNARY, Layer
from fne.store.rows import Rows
from fne.store.ternary import pack
from fne.store.writer import write_rows


def pool(folder: Path, rows: np.ndarray) -> Pool:
    ids = [f"{number:03d}" for number in range(len(rows))]
    shards = [(0, ids, rows)] if len(rows) else []
    write_rows(folder / "store", "embeddings", [Layer("all", rows.shape[1])], TERNARY, shards, {}, {})
    return Pool("", ids, Rows.open(folder / "store"), ids, lambda _: None, lambda _: [])


@pytest.mark.parametrize("features", [1, 3, 8, 12, 16, 333])
def test_products_are_exact_and_those_of_the_compiled_loops(tmp_path, monkeypatch, features):
    monkeypatch.setattr(by_embedding, "BLOCK", 7)
    rows = np.random.default_rng(features).integers(-1, 2, size=(30, features)).astype(np.int8)
    found = ternary_products(rows[4], pool(tmp_path, rows))
    by_hand = [sum(int(a) * int(b) for a, b in zip(row, rows[4], strict=True)) for row in rows]
    assert found.tolist() == by_hand
    assert found.tolist() == ternary_scores(pack(rows[4:5]), pack(rows), features)[0].tolist()


def test_the_product_of_full_rows_does_not_overflow(tmp_path):
    rows = np.ones((2, 5000), dtype=np.int8)
    rows[1] = -1
    assert ternary_products(rows[0], pool(tmp_path, rows)).tolist() == [5000, -5000]


def test_nothing_to_compare_with_gives_no_products(tmp_path):
    assert (
        ternary_products(np.ones(5, dtype=np.int8), pool(tmp_path, np.ones((0, 5), np.int8))).tolist() == []
    )
