"""Workers for tests on Ray clusters: slow ones that record their process, and ones that some images kill."""

import math
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from fne.extraction.ray.worker import Description, Worker, WorkerResult
from fne.store.catalog import Image

# In the project's folder: one file per worker process, the ids of the images that kill a worker, and the number
# of finished rows from which on workers wait, as long as this file exists.
PROCESSES, POISON, LIMIT = Path("processes"), Path("poison"), Path("limit")
SCRATCH = Path(".fne")
# A row of the two layers that `extraction_project` computes, with its digest and checksum.
ROW_BYTES = 4 * (64 + 192) + 64
PAUSE_SECONDS = 0.1
COMPUTING = "computing"


class Slow(Worker):
    """Is slow enough to be killed while it computes, and waits at the limit."""

    def describe(self) -> Description | str:
        """Record the process id."""
        description = super().describe()
        PROCESSES.mkdir(exist_ok=True)
        (PROCESSES / str(os.getpid())).touch()
        return description

    def compute(self, images: Sequence[Image]) -> WorkerResult | str:
        """Record that there is a unit, wait, then compute."""
        (PROCESSES / str(os.getpid())).write_text(COMPUTING)
        time.sleep(PAUSE_SECONDS * len(images))
        while finished(Path()) >= _limit():
            time.sleep(0.02)
        return super().compute(images)


class Fragile(Worker):
    """Is killed by some images, as if the decoder crashed or memory ran out."""

    def compute(self, images: Sequence[Image]) -> WorkerResult | str:
        """Die or compute."""
        poisonous = POISON.read_text().split()
        if any(image.id in poisonous for image in images):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(images)


def finished(folder: Path) -> int:
    """Return the number of rows in the scratch folder."""
    return sum(path.stat().st_size // ROW_BYTES for path in (folder / SCRATCH).glob("activations/*/*.rows"))


def _limit() -> float:
    try:
        return int(LIMIT.read_text())
    except FileNotFoundError:
        return math.inf


WORKERS = {"slow": Slow, "fragile": Fragile}
