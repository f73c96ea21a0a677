"""Being asked to stop, and finishing what is at hand first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# What a shell reports of a process that ended by SIGTERM.
TERMINATED = 128 + signal.SIGTERM


@contextmanager
def noting_termination() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGTERM has come, which does not end the process meanwhile."""
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGTERM, before)
