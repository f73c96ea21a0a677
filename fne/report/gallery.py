"""The examples on the report page, chosen by ranks, scores and seed: hits at rank 1, informative misses."""

from dataclasses import dataclass

import numpy as np

from fne.report.sources import Direction, Evaluation

CANDIDATES = 6  # shown per example


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
    outcome: str  # hit, near or far, by the rank of the first true item
    candidates: list[Candidate]


@dataclass(frozen=True)
class Gallery:
    """The examples of both directions, best ranks first; `near` is the highest rank that counts as near."""

    near: int
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
    near = max(evaluation.image_to_text.recalls)
    images, sentences = (
        [
            _example(direction, query, near)
            for query in choose_queries(direction.ranks, direction.scores[:, 0], count, generator)
        ]
        for direction, generator in (
            (evaluation.image_to_text, np.random.default_rng([seed, 0])),
            (evaluation.text_to_image, np.random.default_rng([seed, 1])),
        )
    )
    return Gallery(near, images, sentences)


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


def _example(direction: Direction, query: int, near: int) -> Example:
    rank = int(direction.ranks[query])
    outcome = "hit" if rank == 1 else "near" if rank <= near else "far"
    candidates = best_matches(direction, query)
    shown = candidates[:CANDIDATES]
    if not any(candidate.true for candidate in shown):
        lower = [candidate for candidate in candidates[CANDIDATES:] if candidate.true][:1]
        if not lower and direction.answers is not None:
            lower = [Candidate(direction.pool_ids[direction.answers[query]], rank, None, True)]
        shown = shown[: CANDIDATES - len(lower)] + lower
    return Example(direction.query_ids[query], rank, outcome, shown)
