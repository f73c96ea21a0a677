"""Being asked to stop, and finishing what is at hand first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# What a shell reports of a process that ended by SIGTERM.
TERMINATED = 128 + signal.SIGTERM


class StoppedError(Exception):
    """The work was asked to stop, and has saved where it was."""


@contextmanager
def noting_termination(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGTERM has come, which does not end the process meanwhile.

    The work then saves where it is and raises `StoppedError`, which ends the process as SIGTERM would.

    Args:
        say: told that the work can go on.
    """
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: came
    except StoppedError:
        say("terminated; run it again to go on from here")
        raise SystemExit(TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
