"""The history of training, for `dvc plots`, `dvc exp show` and the report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dvclive.live import Live
from scmrepo.exceptions import SCMError

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.matching.progress import Point


@contextmanager
def writing_history(folder: Path, processes: Processes = ALONE) -> Iterator[Callable[[Point], None]]:
    """Yield a function that appends a point to the history in `folder`, if this is the first process."""
    if not processes.first:
        yield lambda point: None
        return
    with _logger(folder) as live:

        def tell(point: Point) -> None:
            live.log_metric("train/loss", point.loss)
            live.log_metric("train/phase", point.phase)
            live.log_metric("val/rsum", point.validation.rsum)
            for direction in ("image_to_text", "text_to_image"):
                for name, value in getattr(point.validation, direction).items():
                    live.log_metric(f"val/{direction}/{name}", value)
            live.next_step()

        yield tell


def _logger(folder: Path) -> Live:
    # DVC runs the stage and versions its outs; the logger shall only write files.
    try:
        return Live(dir=str(folder), save_dvc_exp=False, dvcyaml=None, report=None)
    except SCMError as error:
        raise InputError(f"the history cannot be written: {error}; commit something to Git first") from None
