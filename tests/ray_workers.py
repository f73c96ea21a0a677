"""Workers for tests on Ray clusters: they take their time, tell their process, or die of an image."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from fne.activations.worker import Answer, Description, Worker
from fne.store.catalog import Image

# In the project's folder: one file for each worker process, and the ids of the images that kill.
PROCESSES, POISON = Path("processes"), Path("poison")
PAUSE_SECONDS = 0.1


class Slow(Worker):
    """Takes long enough for an image to be killed in the middle of it."""

    def describe(self) -> Description | str:
        """Note the process before saying that it is ready."""
        description = super().describe()
        PROCESSES.mkdir(exist_ok=True)
        (PROCESSES / str(os.getpid())).touch()
        return description

    def compute(self, images: Sequence[Image]) -> Answer | str:
        """Wait a little, then compute."""
        time.sleep(PAUSE_SECONDS * len(images))
        return super().compute(images)


class Fragile(Worker):
    """Is killed by some images, as by a decoder that crashes or by the system for lack of memory."""

    def compute(self, images: Sequence[Image]) -> Answer | str:
        """Die or compute."""
        poisonous = POISON.read_text().split()
        if any(image.id in poisonous for image in images):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(images)


WORKERS = {"slow": Slow, "fragile": Fragile}
