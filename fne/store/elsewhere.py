"""Work in a process of its own, which may hang or crash without taking ours along.

HDF5 believes what a file says about itself: in a damaged one it can be busy for hours, where
nothing of Python's can interrupt it, or bring its process down.
"""

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from fne.core.errors import InputError


class StalledError(Exception):
    """Nothing came for too long."""


class CrashedError(Exception):
    """The process ended before the work did."""


def elsewhere(
    work: Callable[..., Iterator[Any]], arguments: tuple[Any, ...], most_seconds: float
) -> Generator[Any, None, None]:
    """Yield what `work(*arguments)` yields in another process.

    Args:
        work: a generator function of a module; what it yields goes through a pipe.
        arguments: what it is called with.
        most_seconds: how long the next item may take, not counting the start of the process.

    Raises:
        InputError: if the work raises one.
        StalledError: if an item takes longer.
        CrashedError: if the process ends too early.
    """
    # Not "fork": a copy of a process with threads may wait forever for a lock.
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sending, work, arguments), daemon=True)
    with _interrupts_blocked():
        process.start()
    try:
        sending.close()  # so that the end of the process is the end of the pipe
        receiving.recv()
        while True:
            if not receiving.poll(most_seconds):
                raise StalledError
            kind, content = receiving.recv()
            if kind == "end":
                return
            if kind == "refusal":
                raise InputError(content)
            yield content
    except EOFError:
        process.join()
        raise CrashedError from None
    finally:
        process.kill()
        process.join()
        receiving.close()


def _send(sending: Connection, work: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    sending.send("ready")
    try:
        for item in work(*arguments):
            sending.send(("item", item))
        sending.send(("end", None))
    except InputError as error:
        sending.send(("refusal", error.message))


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Leave Ctrl-C to this process: one that starts here inherits what is blocked."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
