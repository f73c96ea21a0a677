"""Paired bootstrap test of whether two experiments differ, by the statistics of `fne.evaluation.paired`.

Resampled test images show how much their choice matters, but not how much the seed of the training does. With
at least five seeds on both sides the seeds are resampled too, and only then does the verdict call one side
better.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.evaluation.intervals import Ranked, draws, metrics_of_draws
from fne.evaluation.metrics.recall import RECALLS
from fne.evaluation.paired import (
    ENOUGH_SEEDS,
    SAMPLES,
    SEED,
    Difference,
    choose_seeds,
    difference,
    mean_over_seeds,
)
from fne.experiments.runs import RANKS, VARIANTS, Run, is_tuned
from fne.store.arrays import Arrays

CATALOGS = ("images", "captions")
UNKNOWN = "unknown"


def compare(
    side_a: Sequence[Arrays],
    side_b: Sequence[Arrays],
    samples: int = SAMPLES,
    seed: int = SEED,
    comparisons: int = 1,
) -> list[Difference]:
    """Compare the ranks of each seed of A with those of B, metric by metric; other test images are refused.

    Intervals are corrected for the number of `comparisons` that are made together.
    """
    require_same_images([*side_a, *side_b])
    sides = [[ranked(ranks) for ranks in side] for side in (side_a, side_b)]
    folds = sides[0][0].folds
    once = np.ones((1, len(folds)))
    found_a, found_b = (_mean_over_seeds(side, once, None) for side in sides)
    with_seeds = min(len(side_a), len(side_b)) >= ENOUGH_SEEDS
    generator = np.random.default_rng((seed, 1)) if with_seeds else None
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in found_a}
    for times in draws(folds, samples, seed):
        before, after = (_mean_over_seeds(side, times, generator) for side in sides)
        for name, values in drawn.items():
            values.append(np.stack([before[name], after[name]]))
    return [
        difference(
            name,
            float(found_a[name][0]),
            float(found_b[name][0]),
            np.concatenate(values, axis=1),
            with_seeds,
            comparisons,
        )
        for name, values in drawn.items()
    ]


def seeds_of(run: Run, all_runs: Iterable[Run]) -> list[Run]:
    """Return a run and the runs that differ only in the seed, one per seed, if the cache has their ranks."""
    if run.ranks is None:
        ranks = VARIANTS["tuned"].ranks if is_tuned(run.settings) else RANKS
        raise InputError(
            f"'{run.name}': its {ranks} is not in the cache; fetch it (`dvc fetch -A`) or run it again"
        )
    seeds = {run.seed: run}
    for other in all_runs:
        if other.experiment == run.experiment and other.ranks is not None:
            seeds.setdefault(other.seed, other)
    return list(seeds.values())


def require_same_images(runs: Sequence[Arrays]) -> None:
    """Raise an `InputError` with both digests if ranks are of different test images or captions.

    Imported vectors do not know the image files; the ids of the images and their captions decide.
    """
    first = comparable_digests(runs[0])
    for other in runs[1:]:
        for name, digest in comparable_digests(other).items():
            if digest != first[name] and UNKNOWN not in (digest, first[name]):
                raise InputError(
                    f"these runs cannot be compared: one was evaluated with {name} {first[name][:12]}…, the "
                    f"other with {name} {digest[:12]}…; evaluate both on the same data set, split and "
                    "protocol"
                )


def _mean_over_seeds(
    side: Sequence[Ranked], times: np.ndarray, generator: np.random.Generator | None
) -> dict[str, np.ndarray]:
    """Return each metric per sample: the mean over all seeds, or over resampled seeds with a generator."""
    found = [metrics_of_draws(each, times, RECALLS) for each in side]
    chosen = choose_seeds(len(side), len(times), generator)
    return {name: mean_over_seeds(np.stack([each[name] for each in found]), chosen) for name in found[0]}


def ranked(ranks: Arrays) -> Ranked:
    """Return the ranks of an evaluation for the bootstrap."""
    return Ranked(ranks["image_ranks"], ranks["caption_ranks"], ranks["caption_image"], ranks["folds"])


def comparable_digests(ranks: Arrays) -> dict[str, str]:
    """Return what must be equal for runs that are compared, by its name."""
    lineage, folds = ranks.artifact.lineage, " ".join(map(str, ranks["folds"].tolist()))
    tested = "\n".join([*ranks.texts("image_ids"), *ranks.texts("caption_ids"), folds])
    catalogs = {name: str(lineage.get(name, {}).get("digest", UNKNOWN)) for name in CATALOGS}
    return catalogs | {"test images": text_digest(tested)}
