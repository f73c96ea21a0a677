"""Tables of an evaluation that `dvc plots` draws: the recall for every K, and the ranks of the queries.

`dvc plots diff` puts several experiments into one picture, so all have the same columns and steps.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fne.core.files import replacing_folder, write_text

RECALL, RANKS = "recall.tsv", "ranks.tsv"
# The longest list whose recall is drawn.
LONGEST = 100
PERCENT = range(1, 101)


def write_curves(
    folder: Path, ranks: Mapping[str, np.ndarray], folds: Mapping[str, np.ndarray], largest: int
) -> None:
    """Write both tables; `largest` is the number of candidates of the direction that has more."""
    with replacing_folder(folder) as temporary:
        ks = range(1, min(LONGEST, largest) + 1)
        write_text(temporary / RECALL, _table("k", ks, recall_curves(ranks, folds, ks)))
        write_text(temporary / RANKS, _table("percent", PERCENT, rank_curves(ranks)))


def recall_curves(
    ranks: Mapping[str, np.ndarray], folds: Mapping[str, np.ndarray], ks: Sequence[int]
) -> dict[str, list[float]]:
    """Return the recall in percent for each K, by direction, as the mean over the folds.

    Example:
        >>> ranks, folds = np.array([1, 3, 1, 1]), np.array([0, 0, 1, 1])
        >>> recall_curves({"text_to_image": ranks}, {"text_to_image": folds}, [1, 2, 3])
        {'text_to_image': [75.0, 75.0, 100.0]}
    """
    return {
        way: [
            100 * float(np.mean([(each[folds[way] == fold] <= k).mean() for fold in np.unique(folds[way])]))
            for k in ks
        ]
        for way, each in ranks.items()
    }


def rank_curves(ranks: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    """Return, for each percentage, the rank within which that many queries have found a true item.

    Example:
        >>> curve = rank_curves({"text_to_image": np.array([4, 1, 1, 9])})["text_to_image"]
        >>> [curve[percent - 1] for percent in (50, 75, 100)]
        [1.0, 4.0, 9.0]
    """
    return {
        way: np.percentile(each, list(PERCENT), method="inverted_cdf").astype(float).tolist()
        for way, each in ranks.items()
    }


def _table(name: str, steps: Sequence[int], curves: Mapping[str, Sequence[float]]) -> str:
    rows = [[name, *curves]]
    rows += [
        [str(step), *(f"{each[place]:.10g}" for each in curves.values())] for place, step in enumerate(steps)
    ]
    return "".join("\t".join(row) + "\n" for row in rows)
