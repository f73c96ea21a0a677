"""The history of a training run: its validations as tables for `dvc plots`, `dvc exp show` and the report.

The folder is written at the end of a run, from the points of that run alone, and names the model that it
belongs to. So a history never mixes two runs, and that of another model is detected.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from dvclive.live import Live
from scmrepo.exceptions import SCMError

from fne.core.errors import InputError
from fne.core.files import replacing_folder
from fne.store.history import MODEL, seal_history
from fne.training.best_epoch import Point


def write_history(folder: Path, points: Sequence[Point], model: str, kind: str = MODEL) -> None:
    """Write all points of a finished run, the digest of the model that it wrote, and its name in lineages."""
    with replacing_folder(folder) as temporary:
        with _logger(temporary) as live:
            for point in points:
                _log(live, point)
        seal_history(temporary, len(points), model, kind)


def _log(live: Live, point: Point) -> None:
    if point.epoch:  # before the first step there is no loss
        live.log_metric("train/loss", point.loss)
    live.log_metric("train/phase", point.phase)
    if len(point.terms) > 1:
        for name, value in point.terms.items():
            live.log_metric(f"train/terms/{name}", value)
    for name, value in point.scores.values.items():
        live.log_metric(f"val/{name}", value)
    live.next_step()  # type: ignore[no-untyped-call]


def _logger(folder: Path) -> Live:
    # DVC runs the stage and versions its outs: the logger only writes files.
    try:
        return Live(dir=str(folder), save_dvc_exp=False, dvcyaml=None, report=None)
    except sqlite3.Error as error:
        raise InputError(
            f"{folder}: DVC cannot use its own database ({error}); free some space and run again"
        ) from None
    except SCMError as error:
        raise InputError(f"the history cannot be written: {error}; commit something to Git first") from None
