"""Whether two experiments differ: a paired bootstrap over test images, and over seeds where there are enough.

Test images are drawn again, the same for both sides, because what is hard for one model is
hard for the other (see `fne.ranking.intervals`). That tells how much the choice of test images
matters. How much the seed of the training matters, only several seeds can tell: with five or
more on both sides they are drawn again too, and only then is one side called better.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fne.core.errors import InputError
from fne.ranking.intervals import LEVEL, Ranked, draws, metrics_of_draws
from fne.ranking.metrics import RECALLS
from fne.store.arrays import Arrays
from fne.store.files import text_digest

ENOUGH_SEEDS = 5
SAMPLES = 2000
SEED = 0
CATALOGS = ("images", "captions")
SEEDS_UNKNOWN = "seed variance unknown"


@dataclass(frozen=True)
class Difference:
    """Both sides' metric, where 95 of 100 draws have B - A, and what may be said about it."""

    metric: str
    a: float
    b: float
    low: float
    high: float
    p: float  # two-sided: how often draws would lie this far to one side if there were no difference
    verdict: str


def compare(
    side_a: Sequence[Arrays], side_b: Sequence[Arrays], samples: int = SAMPLES, seed: int = SEED
) -> list[Difference]:
    """Compare the ranks of one or more seeds of A with those of one or more seeds of B.

    Raises:
        InputError: if they were not evaluated on the same test images.
    """
    require_same_images([*side_a, *side_b])
    sides = [[_ranked(ranks) for ranks in side] for side in (side_a, side_b)]
    folds = sides[0][0].folds
    once = np.ones((1, len(folds)))
    found_a, found_b = (_mean_over_seeds(side, once, None) for side in sides)
    with_seeds = min(len(side_a), len(side_b)) >= ENOUGH_SEEDS
    generator = np.random.default_rng((seed, 1)) if with_seeds else None
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in found_a}
    for times in draws(folds, samples, seed):
        before, after = (_mean_over_seeds(side, times, generator) for side in sides)
        for name, differences in drawn.items():
            differences.append(after[name] - before[name])
    return [
        _judged(
            name, float(found_a[name][0]), float(found_b[name][0]), np.concatenate(differences), with_seeds
        )
        for name, differences in drawn.items()
    ]


def require_same_images(runs: Sequence[Arrays]) -> None:
    """Refuse ranks of different test images or captions, showing both digests."""
    for other in runs[1:]:
        for name, first, second in (
            *((catalog, _catalog(runs[0], catalog), _catalog(other, catalog)) for catalog in CATALOGS),
            ("test images", _tested(runs[0]), _tested(other)),
        ):
            if first != second:
                raise InputError(
                    f"these runs cannot be compared: one was evaluated with {name} {first[:12]}…, the other "
                    f"with {name} {second[:12]}…; evaluate both on the same data set, split and protocol"
                )


def _mean_over_seeds(
    side: Sequence[Ranked], times: np.ndarray, generator: np.random.Generator | None
) -> dict[str, np.ndarray]:
    """Return each metric for each sample: the mean over all seeds, or over seeds drawn for each sample."""
    found = [metrics_of_draws(ranked, times, RECALLS) for ranked in side]
    shape = (len(side), len(times))
    chosen = generator.integers(len(side), size=shape) if generator else np.indices(shape)[0]
    return {
        name: np.take_along_axis(np.stack([each[name] for each in found]), chosen, axis=0).mean(axis=0)
        for name in found[0]
    }


def _judged(metric: str, a: float, b: float, drawn: np.ndarray, with_seeds: bool) -> Difference:
    drawn = drawn.round(9)  # means that differ in their last bits alone are equal
    low, high = np.percentile(drawn, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    # Adding one keeps p from being 0, which no number of draws can show.
    tail = (1 + int(min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0)))) / (1 + len(drawn))
    if not with_seeds:
        verdict = SEEDS_UNKNOWN
    elif low <= 0 <= high:
        verdict = "no difference shown"
    else:
        # A rank is the better, the lower it is.
        verdict = "B is better" if (low > 0) != metric.endswith("_rank") else "A is better"
    return Difference(metric, a, b, float(low), float(high), min(1.0, 2 * tail), verdict)


def _ranked(ranks: Arrays) -> Ranked:
    # Ranks of before there were protocols have no folds.
    folds = ranks.values.get("folds", np.zeros(len(ranks["image_ranks"]), dtype=np.int64))
    return Ranked(ranks["image_ranks"], ranks["caption_ranks"], ranks["caption_image"], folds)


def _catalog(ranks: Arrays, name: str) -> str:
    return str(ranks.artifact.lineage.get(name, {}).get("digest", "unknown"))


def _tested(ranks: Arrays) -> str:
    folds = " ".join(map(str, _ranked(ranks).folds.tolist()))
    return text_digest("\n".join([*ranks.texts("image_ids"), *ranks.texts("caption_ids"), folds]))
