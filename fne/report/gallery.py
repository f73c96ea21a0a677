"""The examples on the report page, chosen by ranks, scores and seed: hits at rank 1, informative misses.

Among the misses are the most confident ones: those whose wrong answer has the highest score of all.
"""

from dataclasses import dataclass

import numpy as np

from fne.report.sources import Direction, Evaluation

CANDIDATES = 6  # shown per example
# What an example came to, by the highest rank of the first true item that counts as it.
OUTCOMES = {"hit": 1, "near": 5, "mid": 10, "far": None}
SURE = 4  # one of so many examples is one of the most confident errors


@dataclass(frozen=True)
class Candidate:
    """One of the best matches of a query, or its true item from a lower place."""

    id: str
    place: int
    score: float | None  # None for a true item outside the stored list of best matches
    true: bool


@dataclass(frozen=True)
class Example:
    """One query with its best matches."""

    id: str
    rank: int
    outcome: str  # one of `OUTCOMES`, by the rank of the first true item
    candidates: list[Candidate]
    sure: bool = False  # whether it is one of the most confident errors


@dataclass(frozen=True)
class Gallery:
    """The examples of both directions, best ranks first."""

    images: list[Example]
    sentences: list[Example]

    @property
    def image_ids(self) -> list[str]:
        """The ids of all images that the gallery shows, without duplicates."""
        shown = {example.id for example in self.images}
        shown |= {candidate.id for example in self.sentences for candidate in example.candidates}
        return sorted(shown)


def choose_gallery(evaluation: Evaluation, count: int, seed: int) -> Gallery:
    """Choose up to `count` examples in each direction."""
    images, sentences = (
        _choose_examples(direction, count, generator)
        for direction, generator in (
            (evaluation.image_to_text, np.random.default_rng([seed, 0])),
            (evaluation.text_to_image, np.random.default_rng([seed, 1])),
        )
    )
    return Gallery(images, sentences)


def count_outcomes(ranks: np.ndarray) -> dict[str, int]:
    """Return how many queries have each of the `OUTCOMES`, given their ranks (queries,)."""
    found = [outcome_of(int(rank)) for rank in ranks]
    return {outcome: found.count(outcome) for outcome in OUTCOMES}


def outcome_of(rank: int) -> str:
    """Return what a query came to.

    Example:
        >>> [outcome_of(rank) for rank in (1, 2, 5, 6, 10, 11)]
        ['hit', 'near', 'near', 'mid', 'mid', 'far']
    """
    return next(outcome for outcome, most in OUTCOMES.items() if most is None or rank <= most)


def choose_queries(
    ranks: np.ndarray, best_scores: np.ndarray, count: int, generator: np.random.Generator
) -> list[int]:
    """Choose up to `count` queries, ordered by rank, given their ranks and highest scores (queries,).

    Half of them are hits, drawn at random. The misses are sorted by rank and split into groups of
    equal size, so that both near and far misses appear. Each group contributes the query whose
    wrong answer scored highest, because a confident mistake shows what the model confuses, or an
    error in the data.
    """
    order = np.argsort(ranks, kind="stable")
    hits, misses = order[ranks[order] == 1], order[ranks[order] > 1]
    wanted = min(len(misses), max(count // 2, count - len(hits)))
    chosen = [int(generator.choice(group)) for group in _groups(hits, count - wanted)]
    chosen += [int(group[np.argmax(best_scores[group])]) for group in _groups(misses, wanted)]
    return sorted(chosen, key=lambda query: (ranks[query], query))


def best_matches(direction: Direction, query: int) -> list[Candidate]:
    """Return the stored best matches of a query, best first."""
    matches = zip(direction.best[query], direction.scores[query], direction.true[query], strict=True)
    # Among equal scores true items come last, as in the ranks.
    ordered = sorted(matches, key=lambda match: (-match[1], match[2]))
    return [
        Candidate(direction.pool_ids[item], place, float(score), bool(true))
        for place, (item, score, true) in enumerate(ordered, start=1)
    ]


def _groups(queries: np.ndarray, count: int) -> list[np.ndarray]:
    groups = min(count, len(queries))
    return np.array_split(queries, groups) if groups else []


def _choose_examples(direction: Direction, count: int, generator: np.random.Generator) -> list[Example]:
    scores, ranks = direction.scores[:, 0], direction.ranks
    misses = np.flatnonzero(ranks > 1)
    sure = misses[np.argsort(-scores[misses], kind="stable")][: count // SURE]
    others = np.setdiff1d(np.arange(len(ranks)), sure)
    drawn = choose_queries(ranks[others], scores[others], count - len(sure), generator)
    chosen = sorted([*others[drawn].tolist(), *sure.tolist()], key=lambda query: (ranks[query], query))
    return [_example(direction, query, query in sure) for query in chosen]


def _example(direction: Direction, query: int, sure: bool = False) -> Example:
    rank = int(direction.ranks[query])
    candidates = best_matches(direction, query)
    shown = candidates[:CANDIDATES]
    if not any(candidate.true for candidate in shown):
        lower = [candidate for candidate in candidates[CANDIDATES:] if candidate.true][:1]
        if not lower and direction.answers is not None:
            lower = [Candidate(direction.pool_ids[direction.answers[query]], rank, None, True)]
        shown = shown[: CANDIDATES - len(lower)] + lower
    return Example(direction.query_ids[query], rank, outcome_of(rank), shown, sure)
