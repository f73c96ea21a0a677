"""The history of a training, as dvclive leaves it: one table of steps and values per metric."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from fne.core.errors import InputError

Series = dict[int, float]  # step, from 1 -> value

LOSS, RSUM, PHASE = "train/loss", "val/rsum", "train/phase"


@dataclass(frozen=True)
class History:
    """Every metric that training logged, by name; a step is one `unit` of training."""

    series: dict[str, Series]
    unit: str = "epoch"

    @property
    def best(self) -> int | None:
        """The first step with the highest validation rsum: the one that training keeps."""
        rsum = self.series.get(RSUM)
        return max(rsum, key=lambda step: rsum[step]) if rsum else None

    @property
    def phase_spans(self) -> dict[int, tuple[int, int]]:
        """The first and last step of each phase, by the phase's number."""
        steps: dict[int, list[int]] = {}
        for step, phase in self.series.get(PHASE, {}).items():
            steps.setdefault(int(phase), []).append(step)
        return {phase: (min(each), max(each)) for phase, each in steps.items()}

    @property
    def curves(self) -> dict[str, Series]:
        """What there is to draw: loss and rsum first, then the rest by name."""
        names = [name for name in (LOSS, RSUM) if name in self.series]
        names += sorted(self.series.keys() - {LOSS, RSUM, PHASE})
        return {name: self.series[name] for name in names}


def read_history(folder: Path, unit: str = "epoch") -> History:
    """Read all tables below a dvclive folder; values that are not finite are left out.

    Steps count from 0; here they count from 1, as in what training prints.
    """
    tables = folder / "plots" / "metrics"
    series = {
        str(path.relative_to(tables).with_suffix("")): _read(path) for path in sorted(tables.rglob("*.tsv"))
    }
    return History({name: values for name, values in series.items() if values}, unit)


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
    return {step: value for step, value in sorted(points.items()) if math.isfinite(value)}
