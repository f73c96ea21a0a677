"""Timing of variants: all of them take turns in one process, so that noise affects them alike."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Ratio:
    """The result of a benchmark: how many times better ours is, by median and by best times."""

    median: float
    best: float


def compare(
    variants: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each variant per round; a first call of each is not timed.

    With `time.process_time` as the clock, they are processor time, which other programs hardly change.
    """
    for run in variants.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return seconds


def print_table(seconds: dict[str, list[float]], baseline: str, unit: str, per_call: float) -> None:
    """Print the speed of each variant and its speedup over the baseline, by best and by median times.

    Args:
        seconds: the result of `compare`.
        baseline: the variant to compare with.
        unit: what a variant processes, in the plural.
        per_call: how many of them it processes per call.
    """
    width = max(len(name) for name in seconds)
    print(f"{'variant':<{width}}  {unit + '/s':>12}  {'best':>6}  {'median':>6}   over {baseline}")
    for name, values in seconds.items():
        best = min(seconds[baseline]) / min(values)
        median = statistics.median(seconds[baseline]) / statistics.median(values)
        print(f"{name:<{width}}  {per_call / min(values):>12,.1f}  {best:>6.2f}  {median:>6.2f}")


def ratio(seconds: dict[str, list[float]], ours: str, baseline: str) -> Ratio:
    """Return how many times faster `ours` is than `baseline`."""
    return Ratio(
        statistics.median(seconds[baseline]) / statistics.median(seconds[ours]),
        min(seconds[baseline]) / min(seconds[ours]),
    )
