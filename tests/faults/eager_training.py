"""Stage `train` with a checkpoint after every step, so that kills meet half-written ones too."""

from fne.core.launch import start
from fne.training.checkpoints import Checkpoints
from stages.train import main

if __name__ == "__main__":
    Checkpoints.due = lambda self: self._processes.first  # type: ignore[method-assign]
    start(main)
