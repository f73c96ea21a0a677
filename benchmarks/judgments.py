"""Agreement with people: 47,830 graded pairs, and verified answers beside the plain evaluation.

`python -m benchmarks.judgments` prints the seconds of all rank correlations with and without their 1,000
samples, and what the ranks of 18 and 8 right answers of 1,300 images and 1,300 captions cost, as in ECCV
Caption, as a part of the plain evaluation of 5,000 images with 25,000 captions.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.evaluation import draw_vectors
from fne.evaluation.agreement import agreement
from fne.evaluation.judgments import RightSets
from fne.evaluation.metrics.ranks import rank
from fne.evaluation.score_judgments import MODEL, Scored, Space, score_sets
from fne.matching.similarities import SIMILARITIES
from fne.store.catalog import Captioned

CAPTIONS = 5


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the least time of some rounds, after one that compiles."""
    work()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def graded(pairs: int = 47_830, images: int = 1000, rounds: int = 3) -> None:
    """Time the figures of graded pairs."""
    generator = np.random.default_rng(0)
    scores, grades = generator.normal(size=pairs), generator.integers(0, 13, pairs) / 12
    owners = generator.permutation(np.arange(pairs) % images)
    for samples in (1, 1000):
        taken = seconds(lambda samples=samples: agreement(scores, grades, owners, 0.5, samples), rounds)  # type: ignore[misc]
        print(f"{pairs:,} pairs, {samples:,} samples: {taken:.2f} s")


def sets(images: int = 5000, dim: int = 1024, queries: int = 1300, rounds: int = 3) -> None:
    """Time right answers of queries, as a ratio to the plain evaluation."""
    own_images, own_captions = draw_vectors(images, dim)[:2]
    vectors = [torch.as_tensor(each) for each in (own_images, own_captions)]
    records = [Captioned(f"{number}.jpg", "test", ("x",) * CAPTIONS, ()) for number in range(images)]
    scored = Scored.of(records)
    names, captions = list(scored.images), list(scored.captions)
    generator = np.random.default_rng(0)

    def some(answers: list[str], count: int) -> list[str]:
        return [
            answers[each] for each in generator.choice(len(answers), min(count, len(answers)), replace=False)
        ]

    right = RightSets(
        "eccv",
        {each: some(captions, 18) for each in some(names, queries)},
        {each: some(names, 8) for each in some(captions, queries)},
    )
    space, cosine = Space(vectors[0], vectors[1], SIMILARITIES["cosine"]), SIMILARITIES["cosine"]
    plain = seconds(lambda: rank(*vectors, torch.from_numpy(scored.owners), cosine, 10), rounds)
    judged = seconds(lambda: score_sets(right, {MODEL: space}, scored, [1, 5, 10]), rounds)
    print(
        f"{images:,} images: {plain:.2f} s plain, {judged:.2f} s for the right answers, {judged / plain:+.0%}"
    )


def tiny(folder: Path) -> None:
    """Run all with little data."""
    graded(pairs=50, images=5, rounds=1)
    sets(images=20, dim=8, queries=5, rounds=1)


if __name__ == "__main__":
    graded()
    sets()
