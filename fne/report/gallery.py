"""The choice of examples: some queries that found a true item at once, and some that did not."""

from dataclasses import dataclass

import numpy as np

from fne.report.evaluation import Direction, Evaluation

SHOWN = 6  # candidates of one example
NEAR = 10  # the last rank that counts as near


@dataclass(frozen=True)
class Candidate:
    """One of the best matches of an example, or its true one from further down (then without a score)."""

    id: str
    place: int
    score: float | None
    true: bool


@dataclass(frozen=True)
class Example:
    """One query with its best matches."""

    id: str
    rank: int
    candidates: list[Candidate]

    @property
    def outcome(self) -> str:
        """`hit`, `near` or `far`: where the first true item stands."""
        return "hit" if self.rank == 1 else "near" if self.rank <= NEAR else "far"


@dataclass(frozen=True)
class Gallery:
    """The examples of both directions, best ranks first."""

    images: list[Example]
    sentences: list[Example]

    @property
    def image_ids(self) -> list[str]:
        """Every image that the gallery shows, once."""
        shown = {example.id for example in self.images}
        shown |= {candidate.id for example in self.sentences for candidate in example.candidates}
        return sorted(shown)


def choose_gallery(evaluation: Evaluation, count: int, seed: int) -> Gallery:
    """Choose up to `count` examples in each direction; a function of the ranks and the seed."""
    images = choose(evaluation.image_to_text.ranks, count, np.random.default_rng([seed, 0]))
    sentences = choose(evaluation.text_to_image.ranks, count, np.random.default_rng([seed, 1]))
    return Gallery(
        [_example(evaluation.image_to_text, query) for query in images],
        [_example(evaluation.text_to_image, query) for query in sentences],
    )


def choose(ranks: np.ndarray, count: int, generator: np.random.Generator) -> list[int]:
    """Choose `count` queries, as far as there are so many, ordered by rank.

    Half are hits. The misses are spread: they are sorted by rank and cut into equal runs,
    and one is drawn from each, so that near misses and hopeless cases both appear.
    """
    order = np.argsort(ranks, kind="stable")
    hits, misses = order[ranks[order] == 1], order[ranks[order] > 1]
    wanted = min(len(misses), max(count // 2, count - len(hits)))
    chosen = _spread(hits, count - wanted, generator) + _spread(misses, wanted, generator)
    return sorted(chosen, key=lambda query: (ranks[query], query))


def _spread(queries: np.ndarray, count: int, generator: np.random.Generator) -> list[int]:
    runs = min(count, len(queries))
    return [int(generator.choice(run)) for run in np.array_split(queries, runs)] if runs else []


def _example(direction: Direction, query: int) -> Example:
    rank = int(direction.ranks[query])
    matches = zip(direction.best[query], direction.scores[query], direction.true[query], strict=True)
    # Among equal scores the true ones come last, as in the ranks.
    ordered = sorted(matches, key=lambda match: (-match[1], match[2]))
    candidates = [
        Candidate(direction.pool_ids[item], place, float(score), bool(true))
        for place, (item, score, true) in enumerate(ordered, start=1)
    ]
    shown = candidates[:SHOWN]
    if not any(candidate.true for candidate in shown):
        further = [candidate for candidate in candidates[SHOWN:] if candidate.true][:1]
        if not further and direction.answers is not None:
            further = [Candidate(direction.pool_ids[direction.answers[query]], rank, None, True)]
        shown = shown[: SHOWN - len(further)] + further
    return Example(direction.query_ids[query], rank, shown)
