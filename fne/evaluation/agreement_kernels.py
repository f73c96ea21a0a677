"""Compiled loops about judgments: rank correlations of a bootstrap, and the ranks of right answers.

Graded pairs are sorted once, by their scores. A sample only changes how often each pair counts. So one pass
over the pairs gives all figures of a sample, with a Fenwick tree over the grades. The rank of a right answer
is a count of scores, so nothing is sorted.
"""

import numpy as np
from numba import njit

FIGURES = 4  # Spearman, tau-b, tau-c, AUC


@njit(nogil=True, cache=True)
def figures(
    times: np.ndarray, owners: np.ndarray, levels: np.ndarray, ends: np.ndarray, count: int, acceptable: int
) -> np.ndarray:
    """Return the figures (samples, FIGURES) of pairs that are sorted by score; NaN where one is not defined.

    Args:
        times: how often each sample draws each image (samples, images).
        owners: the image of each pair (pairs).
        levels: the grade of each pair as its place among the `count` distinct grades (pairs).
        ends: whether a pair is the last one of its score (pairs).
        acceptable: the lowest level that is acceptable.
    """
    found = np.full((len(times), FIGURES), np.nan)
    totals, middle = np.zeros(count), np.zeros(count)
    tree = np.zeros(count + 1)
    for sample in range(len(times)):
        drawn = times[sample]
        totals[:] = 0
        tree[:] = 0
        for pair in range(len(owners)):
            totals[levels[pair]] += drawn[owners[pair]]
        below, grade_ties, grade_squares, grades, good = 0.0, 0.0, 0.0, 0, 0.0
        for level in range(count):
            own = totals[level]
            middle[level] = below + (own + 1) / 2  # the rank that its pairs share
            grade_ties += own * (own - 1) / 2
            grade_squares += own * middle[level] ** 2
            grades += own > 0
            good += own * (level >= acceptable)
            below += own
        pairs = below
        balance, score_ties, score_squares, product, won, scores = 0.0, 0.0, 0.0, 0.0, 0.0, 0
        below, bad_below, start = 0.0, 0.0, 0
        for pair in range(len(owners)):
            if not ends[pair]:
                continue
            own, own_good, own_middle = 0.0, 0.0, 0.0
            for each in range(start, pair + 1):
                weight, level = drawn[owners[each]], levels[each]
                if weight == 0:
                    continue
                lower = 0.0  # pairs of a lower score and a lower grade
                place = level
                while place > 0:
                    lower += tree[place]
                    place -= place & -place
                same = 0.0
                place = level + 1
                while place > 0:
                    same += tree[place]
                    place -= place & -place
                balance += weight * (lower - (below - same))
                own += weight
                own_good += weight * (level >= acceptable)
                own_middle += weight * middle[level]
            for each in range(start, pair + 1):
                place = levels[each] + 1
                while place <= count:
                    tree[place] += drawn[owners[each]]
                    place += place & -place
            rank = below + (own + 1) / 2
            score_ties += own * (own - 1) / 2
            score_squares += own * rank**2
            product += own_middle * rank
            won += own_good * (bad_below + (own - own_good) / 2)
            scores += own > 0
            bad_below += own - own_good
            below += own
            start = pair + 1
        if pairs < 2:
            continue
        center = pairs * ((pairs + 1) / 2) ** 2
        spread = np.sqrt((score_squares - center) * (grade_squares - center))
        every = pairs * (pairs - 1) / 2
        fewer = min(scores, grades)
        if fewer > 1:
            found[sample, 0] = (product - center) / spread
            found[sample, 1] = balance / np.sqrt((every - score_ties) * (every - grade_ties))
            found[sample, 2] = 2 * balance / (pairs**2 * (fewer - 1) / fewer)
        if 0 < good < pairs:
            found[sample, 3] = won / (good * (pairs - good))
    return found


@njit(nogil=True, cache=True)
def rank_right(scores: np.ndarray, bounds: np.ndarray, right: np.ndarray, ranks: np.ndarray) -> None:
    """Write the rank of each right answer, from 1; a wrong one of equal score is before it.

    Args:
        scores: those of some queries with all answers (queries, answers).
        bounds: where the right answers of each query begin, and where the last ones end (queries + 1).
        right: right answers as columns of `scores`; a negative one is not among them and keeps its rank.
        ranks: the same for their ranks.
    """
    for query in range(len(scores)):
        for each in range(bounds[query], bounds[query + 1]):
            if right[each] < 0:
                continue
            own, before = scores[query, right[each]], np.int32(0)
            for column in range(scores.shape[1]):
                before += np.int32(scores[query, column] >= own)
            for other in range(each + 1, bounds[query + 1]):  # the last of equal right ones is the first
                before -= np.int32(right[other] >= 0 and scores[query, right[other]] == own)
            ranks[each] = before
