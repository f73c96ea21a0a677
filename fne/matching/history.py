"""The history of training, for `dvc plots`, `dvc exp show` and the report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dvclive.live import Live

from fne.matching.progress import Point


@contextmanager
def writing_history(folder: Path) -> Iterator[Callable[[Point], None]]:
    """Yield a function that appends a point to the history in `folder`."""
    # DVC runs the stage and versions its outs; the logger shall only write files.
    with Live(dir=str(folder), save_dvc_exp=False, dvcyaml=None, report=None) as live:

        def tell(point: Point) -> None:
            live.log_metric("train/loss", point.loss)
            live.log_metric("train/phase", point.phase)
            live.log_metric("val/rsum", point.validation.rsum)
            for direction in ("image_to_text", "text_to_image"):
                for name, value in getattr(point.validation, direction).items():
                    live.log_metric(f"val/{direction}/{name}", value)
            live.next_step()

        yield tell
