"""The choice of examples: some queries that found a true item at once, and the most telling that did not."""

from dataclasses import dataclass

import numpy as np

from fne.report.evaluation import Direction, Evaluation

SHOWN = 6  # candidates of one example


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
    outcome: str  # hit, near or far: where the first true item stands
    candidates: list[Candidate]


@dataclass(frozen=True)
class Gallery:
    """The examples of both directions, best ranks first; `near` is the last rank that counts as near."""

    near: int
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
    near = max(evaluation.image_to_text.recalls)
    images, sentences = (
        [_example(way, query, near) for query in choose(way.ranks, way.scores[:, 0], count, generator)]
        for way, generator in (
            (evaluation.image_to_text, np.random.default_rng([seed, 0])),
            (evaluation.text_to_image, np.random.default_rng([seed, 1])),
        )
    )
    return Gallery(near, images, sentences)


def choose(
    ranks: np.ndarray, best_scores: np.ndarray, count: int, generator: np.random.Generator
) -> list[int]:
    """Choose `count` queries, as far as there are so many, ordered by rank.

    Half are hits, drawn at random. The misses are the most instructive ones: they are sorted
    by rank and cut into equal runs, so that near misses and hopeless cases both appear, and
    of each run the query is taken whose wrong answer scored highest. A sure mistake shows
    what the model confuses, or a flaw of the data.

    Args:
        ranks: of the first true item of each query (queries).
        best_scores: the highest score of each query (queries).
        count: how many to choose.
        generator: draws the hits.
    """
    order = np.argsort(ranks, kind="stable")
    hits, misses = order[ranks[order] == 1], order[ranks[order] > 1]
    wanted = min(len(misses), max(count // 2, count - len(hits)))
    chosen = [int(generator.choice(run)) for run in _runs(hits, count - wanted)]
    chosen += [int(run[np.argmax(best_scores[run])]) for run in _runs(misses, wanted)]
    return sorted(chosen, key=lambda query: (ranks[query], query))


def _runs(queries: np.ndarray, count: int) -> list[np.ndarray]:
    runs = min(count, len(queries))
    return np.array_split(queries, runs) if runs else []


def _example(direction: Direction, query: int, near: int) -> Example:
    rank = int(direction.ranks[query])
    outcome = "hit" if rank == 1 else "near" if rank <= near else "far"
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
    return Example(direction.query_ids[query], rank, outcome, shown)
