"""A ranking of experiments that admits ties, by the sum of recalls.

Every pair is compared by the paired bootstrap of `fne.evaluation.paired`, with Holm's correction over all
pairs. The rank of an experiment is one more than the number of experiments that are clearly better. So those
that one split of test images cannot separate share a rank, as do those that cannot be separated from both of
two others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase

from fne.evaluation.intervals import LEVEL, Interval, percentiles
from fne.evaluation.paired import (
    ENOUGH_SEEDS,
    SAMPLES,
    SEED,
    compare_rsums,
    holm,
    rsum_samples,
)
from fne.experiments.compare import ranked, require_same_images
from fne.store.arrays import Arrays

# With fewer samples for each pair, no corrected p value could be below 5 %.
SAMPLES_PER_PAIR = 80


@dataclass(frozen=True)
class Ranking:
    """Some experiments, by their places in the order in which they were given."""

    order: list[int]  # best first
    ranks: list[int]  # the rank of each experiment, from 1
    rsums: list[float]
    intervals: list[Interval]
    groups: list[tuple[int, int]]  # the first and last place in `order` of experiments that are not separated
    separated: int  # pairs
    with_seeds: bool  # whether seeds are resampled too

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.order) * (len(self.order) - 1) // 2

    def letters(self, side: int, used: int = 0) -> str:
        """Return a letter for each group of an experiment: those with a common letter are not separated.

        The first `used` letters are those of other rankings.
        """
        place = self.order.index(side)
        numbers = [number for number, (first, last) in enumerate(self.groups) if first <= place <= last]
        return "".join(ascii_lowercase[(number + used) % len(ascii_lowercase)] for number in numbers)


def rank_experiments(sides: Sequence[Sequence[Arrays]], samples: int = SAMPLES, seed: int = SEED) -> Ranking:
    """Rank experiments, each given by the ranks of its seeds; other test images are refused."""
    require_same_images([ranks for side in sides for ranks in side])
    pairs = list(combinations(range(len(sides)), 2))
    samples = max(samples, SAMPLES_PER_PAIR * len(pairs))
    drawn = rsum_samples([[ranked(each) for each in side] for side in sides], samples, seed)
    enough = min(len(side) for side in sides) >= ENOUGH_SEEDS
    corrected = holm([compare_rsums(drawn[a], drawn[b], enough).p for a, b in pairs])
    apart = {pair for pair, p in zip(pairs, corrected, strict=True) if p < 1 - LEVEL}
    rsums = [rsum for rsum, _ in drawn]
    order = sorted(range(len(sides)), key=lambda each: -rsums[each])

    def separated(a: int, b: int) -> bool:
        return (min(a, b), max(a, b)) in apart

    better = [
        sum(separated(side, other) and rsums[other] > rsums[side] for other in order)
        for side in range(len(sides))
    ]
    return Ranking(
        order,
        [1 + each for each in better],
        rsums,
        [percentiles(values) for _, values in drawn],
        _groups([[not separated(a, b) for b in order] for a in order]),
        len(apart),
        enough,
    )


def _groups(together: Sequence[Sequence[bool]]) -> list[tuple[int, int]]:
    """Return the longest stretches of places in which no pair is separated; (places, places) says which is.

    Example:
        >>> _groups([[True, True, False], [True, True, True], [False, True, True]])
        [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first in range(len(together)):
        last = first
        while last + 1 < len(together) and all(together[last + 1][first : last + 1]):
            last += 1
        if last > first and not (found and found[-1][1] >= last):
            found.append((first, last))
    return found
