"""Measuring variants side by side in one run, because machines are noisy."""

import statistics
import time
from collections.abc import Callable


def compare(variants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each variant, all of them called in turn in every round."""
    for run in variants.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def print_table(seconds: dict[str, list[float]], opponent: str, unit: str, per_call: float) -> None:
    """Print what each variant reaches, and its ratio to the opponent: of the best and of the median times."""
    width = max(len(name) for name in seconds)
    print(f"{'variant':<{width}}  {unit + '/s':>12}  {'best':>6}  {'median':>6}   over {opponent}")
    for name, values in seconds.items():
        best = min(seconds[opponent]) / min(values)
        median = statistics.median(seconds[opponent]) / statistics.median(values)
        print(f"{name:<{width}}  {per_call / min(values):>12,.1f}  {best:>6.2f}  {median:>6.2f}")


def ratio(seconds: dict[str, list[float]], ours: str, opponent: str) -> float:
    """Return how many times faster ours is, by median times."""
    return statistics.median(seconds[opponent]) / statistics.median(seconds[ours])
