"""Rare searches for garbage: commands and stages import torch, whose objects live as long as the process.

By default Python goes through all objects again and again while it imports them, and once more at exit. With
torch that takes 0.2 and 0.6 seconds of CPU per process, as long as what many commands compute.
"""

import atexit
import gc
import sys

# New objects between two searches; Python has 700.
OBJECTS = 50_000


def collect_rarely() -> None:
    """Search for garbage rarely in this process, and not at exit: the system frees all memory."""
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    atexit.register(_skip_last)


def _skip_last() -> None:
    # Triton, which `torch.compile` imports, would report all of its functions as leaked.
    if "triton" not in sys.modules:
        gc.freeze()
