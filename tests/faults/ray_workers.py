"""Workers for tests on Ray clusters: slow ones that record their process, and ones that some images kill."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from fne.extraction.ray.worker import Description, Worker, WorkerResult
from fne.store.catalog import Image

# In the project's folder: one file per worker process, and the ids of the images that kill a worker.
PROCESSES, POISON = Path("processes"), Path("poison")
PAUSE_SECONDS = 0.1


class Slow(Worker):
    """Is slow enough to be killed while it computes."""

    def describe(self) -> Description | str:
        """Record the process id."""
        description = super().describe()
        PROCESSES.mkdir(exist_ok=True)
        (PROCESSES / str(os.getpid())).touch()
        return description

    def compute(self, images: Sequence[Image]) -> WorkerResult | str:
        """Wait a little, then compute."""
        time.sleep(PAUSE_SECONDS * len(images))
        return super().compute(images)


class Fragile(Worker):
    """Is killed by some images, as if the decoder crashed or memory ran out."""

    def compute(self, images: Sequence[Image]) -> WorkerResult | str:
        """Die or compute."""
        poisonous = POISON.read_text().split()
        if any(image.id in poisonous for image in images):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(images)


WORKERS = {"slow": Slow, "fragile": Fragile}
