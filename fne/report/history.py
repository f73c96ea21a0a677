"""The history of a training, as dvclive leaves it: one table of steps and values per metric."""

import csv
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fne.core.errors import InputError

Series = dict[int, float]  # epoch, from 1 -> value

LOSS, RSUM, PHASE = "train/loss", "val/rsum", "train/phase"


@dataclass(frozen=True)
class History:
    """Every metric that training logged, by name."""

    series: dict[str, Series]

    @property
    def best_epoch(self) -> int | None:
        """The first epoch with the highest validation rsum: the one that training keeps."""
        rsum = self.series.get(RSUM)
        return max(rsum, key=lambda epoch: rsum[epoch]) if rsum else None

    @property
    def phase_starts(self) -> dict[int, int]:
        """The first epoch of each phase after the first one, and the phase's number."""
        phases = list(self.series.get(PHASE, {}).items())
        return {epoch: int(phase) for (_, before), (epoch, phase) in pairwise(phases) if phase != before}

    @property
    def curves(self) -> dict[str, Series]:
        """What there is to draw: loss and rsum first, then the rest by name."""
        names = [name for name in (LOSS, RSUM) if name in self.series]
        names += sorted(self.series.keys() - {LOSS, RSUM, PHASE})
        return {name: self.series[name] for name in names}


def read_history(folder: Path) -> History:
    """Read all tables below a dvclive folder; values that are not finite are left out.

    Steps count from 0; epochs count from 1 here, as in what training prints.
    """
    tables = folder / "plots" / "metrics"
    series = {
        str(path.relative_to(tables).with_suffix("")): _read(path) for path in sorted(tables.rglob("*.tsv"))
    }
    return History({name: values for name, values in series.items() if values})


def _read(path: Path) -> Series:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            points = {
                int(row["step"]) + 1: float(row[path.stem]) for row in csv.DictReader(file, delimiter="\t")
            }
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{path}: expected numbers in columns 'step' and '{path.stem}'; run `dvc repro train`"
            ) from None
    return {epoch: value for epoch, value in sorted(points.items()) if math.isfinite(value)}
