"""Exact search against the indexes of faiss, on large synthetic catalogs: time, memory and recall.

`python -m benchmarks.large_catalogs` prints a table; `--rows`, `--dims`, `--no-ternary` and `--hnsw` choose
parts of it. Without faiss (`pip install -e '.[bench]'`) its rows are missing. A million rows need 9 GB of
memory. It does not compare two variants, so `make bench` does not run it.

Rows are drawn around 1,000 centers, as photographs have groups that look alike. A query is drawn like a
row. The recall is the fraction of the ten best by the exact score that are among the ten of an index.
Variants take turns query by query, so that noise affects them alike. Everything runs in one thread; the
processor time is what a query takes on a machine that does nothing else.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from fne.matching.numpy_model import cosine
from fne.search.bit_kernels import ternary_products
from fne.search.engine import top_k
from fne.store.layout import pack

try:
    import faiss
except ImportError:
    faiss = None

K = 10
CENTERS = 1_000
BLOCK = 4_096
FEATURES = 12_416  # a full-network embedding of VGG16
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 32, 40, 64
SLOW_ROWS = 100_000  # rows for NumPy's slow bit counting

Search = Callable[[np.ndarray], list[int]]


@dataclass(frozen=True)
class Variant:
    """A way to search: the function, the seconds that it took to build, and the bytes of its rows."""

    search: Search
    build: float
    bytes: int


def floats(rows: int, dim: int, queries: int, rounds: int, hnsw: int) -> None:
    """Search vectors of length one by their cosine; HNSW only if there are not more values than that."""
    vectors, asked = _clustered(rows, dim, queries)
    parts = [vectors[start : start + BLOCK] for start in range(0, rows, BLOCK)]

    def ours(query: np.ndarray) -> list[int]:
        return top_k(np.concatenate([cosine(part, query[None]) for part in parts]), K)

    variants = {
        "exact, NumPy (ours)": Variant(ours, 0, vectors.nbytes),
        "exact, BLAS": Variant(lambda query: top_k(vectors @ query, K), 0, vectors.nbytes),
    }
    if faiss:
        variants["faiss IndexFlatIP"] = _index(faiss.IndexFlatIP(dim), vectors, vectors.nbytes)
    if faiss and rows * dim <= hnsw:
        index = faiss.IndexHNSWFlat(dim, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = HNSW_BUILD, HNSW_SEARCH
        links = rows * 2 * HNSW_LINKS * 4
        variants["faiss IndexHNSWFlat"] = _index(index, vectors, vectors.nbytes + links)
    _compare(f"{dim:,} floats", rows, variants, asked, rounds)


def ternary(rows: int, queries: int, rounds: int) -> None:
    """Search ternary embeddings by dot product; IndexBinaryFlat ranks by the number of different bits."""
    generator = np.random.default_rng(1)
    centers = pack(generator.integers(-1, 2, (CENTERS, FEATURES)).astype(np.int8))
    planes = np.empty((rows, centers.shape[1]), dtype=np.uint8)
    for start in range(0, rows, BLOCK):
        part = planes[start : start + BLOCK]
        part[:] = _noisy(centers, len(part), generator)
    asked = _noisy(centers, queries, generator)
    variants = {
        "exact, compiled (ours)": Variant(
            lambda query: top_k(ternary_products(planes, query), K), 0, planes.nbytes
        ),
    }
    if faiss:
        index = faiss.IndexBinaryFlat(8 * planes.shape[1])
        variants["faiss IndexBinaryFlat"] = _index(index, planes, planes.nbytes)
    if rows <= SLOW_ROWS:
        variants["exact, NumPy"] = Variant(lambda query: top_k(_numpy(planes, query), K), 0, planes.nbytes)
    _compare(f"{FEATURES:,} ternary", rows, variants, asked, rounds)


def _compare(width: str, rows: int, variants: dict[str, Variant], asked: np.ndarray, rounds: int) -> None:
    """Print a row of the table for each variant; the first one is exact."""
    first, *_ = variants.values()
    exact = [set(first.search(query)) for query in asked]
    recalls = {
        name: statistics.fmean(
            len(set(each.search(query)) & best) / K for query, best in zip(asked, exact, strict=True)
        )
        for name, each in variants.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    used: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for query in asked:
            for name, each in variants.items():
                start, before = time.perf_counter(), time.process_time()
                each.search(query)
                used[name].append(time.process_time() - before)
                seconds[name].append(time.perf_counter() - start)
    for name, each in variants.items():
        best, median = 1000 * min(seconds[name]), 1000 * statistics.median(used[name])
        cells = [width, f"{rows:,}", name, f"{best:,.2f}", f"{median:,.2f}", f"{each.build:,.1f}"]
        click.echo(f"| {' | '.join([*cells, f'{each.bytes / 1e6:,.0f}', f'{recalls[name]:.2f}'])} |")


def _clustered(rows: int, dim: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    centers = generator.standard_normal((CENTERS, dim), dtype=np.float32)

    def draw(count: int) -> np.ndarray:
        drawn = generator.standard_normal((count, dim), dtype=np.float32)
        drawn += centers[generator.integers(0, CENTERS, count)]
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn

    vectors = np.empty((rows, dim), dtype=np.float32)
    for start in range(0, rows, BLOCK):
        part = vectors[start : start + BLOCK]
        part[:] = draw(len(part))
    return vectors, draw(queries)


def _noisy(centers: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return bit planes of centers in which each value is kept with a probability of a half, or is 0."""
    chosen = centers[generator.integers(0, CENTERS, count)]
    half = centers.shape[1] // 2
    kept = generator.integers(0, 256, (count, half), dtype=np.uint8)
    noisy: np.ndarray = chosen & np.concatenate([kept, kept], axis=1)
    return noisy


def _numpy(planes: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Count bits as `fne search` does."""
    opposite = np.roll(query, len(query) // 2)

    def blocks() -> Iterator[np.ndarray]:
        return (planes[start : start + 1024] for start in range(0, len(planes), 1024))

    def bits(common: np.ndarray) -> np.ndarray:
        counts: np.ndarray = np.bitwise_count(common).sum(axis=1, dtype=np.int32)
        return counts

    return np.concatenate([bits(block & query) - bits(block & opposite) for block in blocks()])


def _index(index: Any, rows: np.ndarray, size: int) -> Variant:
    start = time.process_time()
    index.add(rows)
    build = time.process_time() - start
    return Variant(lambda query: list(index.search(query[None], K)[1][0]), build, size)


@click.command()
@click.option("--rows", type=int, multiple=True, default=[8_000, 100_000, 1_000_000], show_default=True)
@click.option("--dims", type=int, multiple=True, default=[256, 1_024], show_default=True)
@click.option("--queries", default=20, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--hnsw", default=30_000_000, show_default=True, help="Values at most; more take long to build."
)
@click.option("--ternary/--no-ternary", "with_ternary", default=True, help="Also search ternary rows.")
def main(
    rows: tuple[int, ...], dims: tuple[int, ...], queries: int, rounds: int, hnsw: int, with_ternary: bool
) -> None:
    """Print a table of times, memory and recalls."""
    if faiss:
        faiss.omp_set_num_threads(1)
    else:
        click.echo("faiss is not installed, so its rows are missing", err=True)
    click.echo("| rows of | number | search | best ms | processor ms | s to build | MB | recall@10 |")
    click.echo("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for count in rows:
            for dim in dims:
                floats(count, dim, queries, rounds, hnsw)
            if with_ternary:
                ternary(count, queries, rounds)


def tiny(folder: Path) -> None:
    """Run with little data."""
    main.main(["--rows", "40", "--dims", "8", "--queries", "2", "--rounds", "1"], standalone_mode=False)


if __name__ == "__main__":
    main()
