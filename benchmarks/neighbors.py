"""Exact nearest neighbors of ternary rows, with one number of threads for all."""

from collections.abc import Callable

import numba
import numpy as np
import torch

from benchmarks.side_by_side import compare, print_table, ratio
from fne.features.neighbors import nearest
from fne.store.ternary import pack

ROWS, FEATURES, QUERIES, K = 30_000, 12416, 128, 10
GEMM, INT8, OURS = "float32 GEMM + topk", "torch._int_mm + topk (*)", "ours: bit planes"
# Where the CPU has no instructions for int8, torch._int_mm takes minutes: it gets a part of the rows.
PART = 20


def neighbors() -> float:
    """Find the 10 nearest of 30,000 ternary rows of 12,416 for 128 queries, against a float32 product."""
    threads = numba.get_num_threads()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    generator = np.random.default_rng(0)
    rows = generator.integers(-1, 2, (ROWS, FEATURES), dtype=np.int8)
    queries = generator.integers(-1, 2, (QUERIES, FEATURES), dtype=np.int8)
    planes, query_planes = pack(rows), pack(queries)
    whole, query_whole = torch.from_numpy(rows), torch.from_numpy(queries)
    floats, query_floats = whole.float(), query_whole.float()
    part = whole[: ROWS // PART]
    variants: dict[str, Callable[[], object]] = {
        GEMM: lambda: (query_floats @ floats.T).topk(K),
        INT8: lambda: torch._int_mm(query_whole, part.T).topk(K),
        OURS: lambda: nearest(query_planes, planes, FEATURES, K),
    }
    expected = (query_floats @ floats.T).topk(K).values
    assert np.array_equal(nearest(query_planes, planes, FEATURES, K)[1], expected.numpy())
    seconds = compare(variants, rounds=5)
    torch.set_num_threads(before)
    seconds[INT8] = [each * PART for each in seconds[INT8]]
    print_table(seconds, GEMM, "queries", QUERIES)
    print(f"(*) measured on {len(part):,} rows, times {PART}; all with {threads} threads")
    return ratio(seconds, OURS, GEMM)
