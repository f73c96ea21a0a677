"""The charts of an evaluation: recall at every K, and the histogram of ranks."""

import numpy as np

from fne.report.charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Bar,
    Chart,
    Dot,
    Tick,
    compact,
    linear,
    logarithmic,
    path,
    round_steps,
)
from fne.report.evaluation import Direction
from fne.report.guessing import guessed_recall

MOST_BARS = 8


def recall_curve(direction: Direction) -> Chart:
    """Draw recall@K over every K from 1 to the whole pool, beside guessing."""
    pool = direction.pool
    ks = sorted({*range(1, min(pool, 20) + 1), *np.geomspace(1, pool, 60).astype(int).tolist()})
    recalls = {k: direction.recall(k) for k in ks}
    chances = {k: guessed_recall(direction, k) for k in ks}
    x, y = logarithmic(1, max(pool, 2), LEFT, RIGHT), linear(0, 100, BOTTOM, TOP)
    listed = {k: recall for k, recall in direction.recalls.items() if k <= pool}
    return Chart(
        title="Recall within the first K",
        summary="; ".join(f"recall at {k}: {recall:.1f} %" for k, recall in listed.items()),
        x_label="K, the length of the list",
        x_ticks=[Tick(x(k), compact(k)) for k in _round_edges(pool, (1, 5))],
        y_ticks=[Tick(y(percent), f"{percent} %") for percent in (0, 25, 50, 75, 100)],
        line=path(recalls, x, y),
        chance=path(chances, x, y),
        dots=[Dot(x(k), y(recall), f"R@{k}: {recall:.1f} %") for k, recall in listed.items()],
    )


def rank_histogram(direction: Direction) -> Chart:
    """Draw how many queries find their first true item at which rank, beside guessing."""
    pool, queries = direction.pool, len(direction.ranks)
    edges = _round_edges(pool, (1, 2, 5))
    if len(edges) > MOST_BARS:
        edges = _round_edges(pool, (1, 5))
    within = np.array([0] + [int((direction.ranks <= edge).sum()) for edge in edges])
    guessed = np.array([0.0] + [guessed_recall(direction, edge) for edge in edges])
    counts, chances = np.diff(within), np.diff(guessed) / 100 * queries
    steps = round_steps(0, max(counts.max(), chances.max()))
    y, slot = linear(0, steps[-1], BOTTOM, TOP), (RIGHT - LEFT) / len(edges)
    ranges = _ranges(edges)
    return Chart(
        title="Queries at each rank",
        summary="; ".join(f"rank {span}: {count}" for span, count in zip(ranges, counts, strict=True)),
        x_label="rank of the first true one",
        x_ticks=[
            Tick(
                round(LEFT + slot * (place + 0.5), 2),
                compact(edge) if "–" not in span else f"≤{compact(edge)}",
            )
            for place, (edge, span) in enumerate(zip(edges, ranges, strict=True))
        ],
        y_ticks=[Tick(y(step), compact(step)) for step in steps],
        bars=[
            Bar(
                x=round(LEFT + slot * place + 4, 2),
                y=y(count),
                width=round(slot - 8, 2),
                chance=y(chance),
                label=str(count) if count else "",
                words=f"Rank {span}: {count} of {queries}, by guessing {chance:.1f}",
            )
            for place, (span, count, chance) in enumerate(zip(ranges, counts, chances, strict=True))
        ],
    )


def _round_edges(pool: int, factors: tuple[int, ...]) -> list[int]:
    edges = [factor * 10**power for power in range(len(str(pool))) for factor in factors]
    return [edge for edge in edges if edge <= pool / 2] + [pool]


def _ranges(edges: list[int]) -> list[str]:
    starts = [1] + [edge + 1 for edge in edges[:-1]]
    return [str(end) if start == end else f"{start}–{end}" for start, end in zip(starts, edges, strict=True)]
