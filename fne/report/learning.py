"""The charts of a training: each metric over the epochs, its phases and the best epoch marked."""

from itertools import pairwise

from fne.report.charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Chart,
    Dot,
    Scale,
    Tick,
    compact,
    linear,
    path,
    round_steps,
)
from fne.report.history import LOSS, RSUM, History

WORDS = {
    "image_to_text": "image → sentences",
    "text_to_image": "sentence → images",
    "median_rank": "median rank",
    "mean_rank": "mean rank",
    "train": "Training",
    "val": "Validation",
}
ROOM = 62  # what the words "phase 1" take


def learning_curves(history: History) -> list[Chart]:
    """Draw each metric of the training."""
    return [_learning_curve(name, history) for name in history.curves]


def in_words(name: str) -> str:
    """Say what a metric of the history is.

    Example:
        >>> in_words("val/text_to_image/R@10")
        'Validation R@10, sentence → images'
    """
    first, *middle, last = [WORDS.get(part, part) for part in name.split("/")]
    return ", ".join([f"{first} {last}", *middle])


def _learning_curve(name: str, history: History) -> Chart:
    values, unit, best = history.curves[name], history.unit, history.best
    steps = list(values)
    floor = 0.0 if min(values.values()) >= 0 and name != RSUM else min(values.values())
    heights = round_steps(floor, max(values.values()))
    x, y = linear(steps[0], steps[-1], LEFT, RIGHT), linear(heights[0], heights[-1], BOTTOM, TOP)
    marked = {best} if name == RSUM else set(steps) if len(steps) == 1 else set()
    told = [step for step in steps if step in (steps[0], best, steps[-1])]
    return Chart(
        title=in_words(name) + (" per pair" if name == LOSS else ""),
        summary="; ".join(f"{unit} {step}: {values[step]:.4g}" for step in told),
        x_label=unit,
        x_ticks=[Tick(x(step), compact(step)) for step in round_steps(steps[0], steps[-1], whole=True)],
        y_ticks=[Tick(y(height), compact(height)) for height in heights],
        line=path(values, x, y),
        dots=[
            Dot(x(step), y(values[step]), f"{unit.capitalize()} {step}: {values[step]:.4g}")
            for step in steps
            if step in marked
        ],
        phases=_phases(history, x),
        best=Tick(x(best), f"best: {unit} {best}") if best in values else None,
        best_label_at=_label_at(y(values[best])) if best in values else 0,
    )


def _label_at(height: float) -> float:
    """Return where a label is out of the way of a curve at this height: at the other end."""
    return TOP + 14 if height > (TOP + BOTTOM) / 2 else BOTTOM - 8


def _phases(history: History, x: Scale) -> list[Tick]:
    starts = {phase: x(first) for phase, (first, _) in history.phase_spans.items()}
    if len(starts) < 2:
        return []
    rooms = [after - at for at, after in pairwise([*starts.values(), RIGHT])]
    return [
        Tick(at, f"phase {phase}" if room >= ROOM else str(phase))
        for (phase, at), room in zip(starts.items(), rooms, strict=True)
    ]
