"""The page's charts: recall at every K, the histogram of ranks, the course of training."""

import numpy as np

from fne.report.chance import chance_of_recall
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
from fne.report.history import LOSS, RSUM, History

NAMES = {LOSS: "Training loss", RSUM: "Validation rsum"}
MOST_BARS = 8


def recall_curve(direction: Direction) -> Chart:
    """Draw recall@K over every K from 1 to the whole pool, beside guessing."""
    pool = direction.pool
    ks = sorted({*range(1, min(pool, 20) + 1), *np.geomspace(1, pool, 60).astype(int).tolist()})
    ordered = np.sort(direction.ranks)
    recalls = {k: 100 * np.searchsorted(ordered, k, side="right") / len(ordered) for k in ks}
    chances = {k: chance_of_recall(k, pool, direction.true_counts) for k in ks}
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
    guessed = np.array([0.0] + [chance_of_recall(edge, pool, direction.true_counts) for edge in edges])
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


def learning_curves(history: History) -> list[Chart]:
    """Draw each metric of the training over the epochs; the best epoch and the phases are marked."""
    return [_learning_curve(name, history) for name in history.curves]


def _learning_curve(name: str, history: History) -> Chart:
    values, title = history.curves[name], NAMES.get(name, name)
    epochs, best = list(values), history.best_epoch
    floor = 0.0 if min(values.values()) >= 0 and name != RSUM else min(values.values())
    steps = round_steps(floor, max(values.values()))
    x, y = linear(epochs[0], epochs[-1], LEFT, RIGHT), linear(steps[0], steps[-1], BOTTOM, TOP)
    marked = {best} if name == RSUM else set(epochs) if len(epochs) == 1 else set()
    told = [epoch for epoch in epochs if epoch in (epochs[0], best, epochs[-1])]
    return Chart(
        title=title,
        summary="; ".join(f"epoch {epoch}: {values[epoch]:.4g}" for epoch in told),
        x_label="epoch",
        x_ticks=[Tick(x(epoch), compact(epoch)) for epoch in round_steps(epochs[0], epochs[-1], whole=True)],
        y_ticks=[Tick(y(step), compact(step)) for step in steps],
        line=path(values, x, y),
        dots=[
            Dot(x(epoch), y(values[epoch]), f"Epoch {epoch}: {values[epoch]:.4g}")
            for epoch in epochs
            if epoch in marked
        ],
        phases=[
            Tick(x(epoch), f"phase {phase}")
            for epoch, phase in history.phase_starts.items()
            if epoch in values
        ],
        best=Tick(x(best), f"best: epoch {best}") if best in values else None,
    )


def _round_edges(pool: int, factors: tuple[int, ...]) -> list[int]:
    edges = [factor * 10**power for power in range(len(str(pool))) for factor in factors]
    return [edge for edge in edges if edge <= pool / 2] + [pool]


def _ranges(edges: list[int]) -> list[str]:
    starts = [1] + [edge + 1 for edge in edges[:-1]]
    return [str(end) if start == end else f"{start}–{end}" for start, end in zip(starts, edges, strict=True)]
