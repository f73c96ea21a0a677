"""Stage `train` with a checkpoint after every step, so that kills meet half-written ones too."""

from fne.core.launch import start
from fne.matching.checkpoints import Checkpoints
from stages.train import main

Checkpoints.due = lambda self: self._processes.first  # type: ignore[method-assign]

if __name__ == "__main__":
    start(main)
