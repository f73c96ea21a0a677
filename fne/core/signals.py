"""Stop signals: SIGTERM and Ctrl-C, delayed until the current work is saved."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from fne.core.terminal import say

# The exit code that a shell reports for a process that ended by SIGTERM.
TERMINATED = 128 + signal.SIGTERM
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CONTINUES = "finished work is kept, and the same command continues from there"


class StoppedError(Exception):
    """The work was asked to stop, and has saved its state."""


class StopRequest:
    """Whether a stop signal has arrived, and which one."""

    def __init__(self) -> None:
        self._signal: int | None = None

    def __call__(self) -> bool:
        """Return whether a stop signal has arrived."""
        return self._signal is not None

    def exit(self) -> NoReturn:
        """End as the signal would have ended the process; as SIGTERM does, if none has arrived here."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(TERMINATED)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record a signal: a handler for `signal.signal`."""
        self._signal = number


@contextmanager
def graceful_stop(
    log: Callable[[str], None] | None = None, signals: Sequence[signal.Signals] = STOP_SIGNALS
) -> Iterator[StopRequest]:
    """Delay stop signals while the block runs, so that it can save its state first.

    The block calls the yielded request from time to time. When that returns True, it saves its state and
    calls `exit` of the request or raises `StoppedError`. Outside the main thread, signals are not delayed.
    """
    request = StopRequest()
    try:
        with _handlers(signals, request.handle):
            yield request
    except StoppedError:
        if log:
            log(f"terminated; {CONTINUES}")
        request.exit()


@contextmanager
def explain_interrupt() -> Iterator[None]:
    """If Ctrl-C interrupts the block, print that the same command continues; only in the first process."""
    try:
        yield
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":
            say(f"interrupted; {CONTINUES}", err=True)
        raise


@contextmanager
def exit_on_sigterm() -> Iterator[Callable[[], None]]:
    """Yield a function that lets SIGTERM end the process with the usual exit code; undo that afterwards.

    Call it after a library such as Ray has installed a handler of its own, with an exit code of its own.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    with _handlers((signal.SIGTERM,), None):
        yield lambda: _set_handler(signal.SIGTERM, terminate)


@contextmanager
def _handlers(
    signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None] | None
) -> Iterator[None]:
    """Install a handler for some signals, if there is one, and restore the handlers of before afterwards."""
    before = {number: signal.getsignal(number) for number in signals}
    try:
        for number in signals:
            _set_handler(number, handler)
        yield
    finally:
        for number, previous in before.items():
            _set_handler(number, previous)


def _set_handler(
    number: signal.Signals,
    handler: Callable[[int, FrameType | None], object] | int | None,
) -> None:
    # Python runs handlers in the main thread, and only that thread may set them.
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)
