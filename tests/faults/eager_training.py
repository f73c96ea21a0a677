"""Stage `train` with a checkpoint after every step, so that kills meet half-written ones too.

While the file `HOLD` exists, training waits after some steps: what a test does then happens in the middle of the
training, however busy the machine is. A stop signal ends the waiting.
"""

import signal
import time
from pathlib import Path

from fne.core.launch import start
from fne.core.signals import StopRequest
from fne.training.checkpoints import Checkpoints
from stages.train import main

HOLD = Path("hold")
HELD_AFTER = 12  # steps of this process


class Eager:
    """Replaces the question whether a checkpoint is due, which is asked after every step."""

    steps = 0

    def __call__(self, checkpoints: Checkpoints) -> bool:
        """Write one after every step; before the one after `HELD_AFTER`, wait."""
        self.steps += 1
        while self.steps > HELD_AFTER and HOLD.exists() and not _stopping():
            time.sleep(0.02)
        return checkpoints._processes.first


def _stopping() -> bool:
    request = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return isinstance(request, StopRequest) and request()


if __name__ == "__main__":
    eager = Eager()
    Checkpoints.due = lambda self: eager(self)  # type: ignore[method-assign]
    start(main)
