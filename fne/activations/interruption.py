"""Being asked to stop (Ctrl-C, SIGTERM), and taking in what is finished first."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fne.core.stopping import TERMINATED

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether a signal has come, and which."""

    def __init__(self) -> None:
        self._signal: int | None = None

    @property
    def came(self) -> bool:
        """Whether we are asked to stop."""
        return self._signal is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take notice of a signal."""
        self._signal = number

    def follow(self) -> None:
        """End as the signal would have it."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(TERMINATED)


@contextmanager
def noting_interruption() -> Iterator[Interruption]:
    """Yield what tells whether a signal has come, which does not end the process meanwhile."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals are the main thread's
        return
    before = {number: signal.signal(number, interruption.note) for number in SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
