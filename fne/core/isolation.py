"""Work that may crash, hang or fill the memory, done in child processes.

A damaged or hostile file can crash the library that reads it, keep it busy for hours where Python cannot
interrupt it, or make it allocate all memory. Here that costs a child process, and nothing else.

The parent sends a function of a module and its arguments. The child (`python -m fne.core.isolation MEMORY`)
sends back what it yields: JSON-compatible values (records become dicts) and bytes. Nothing that a child sends
is executed or unpickled, because a file may have taken it over. A child gets no Ctrl-C and no standard input,
prints nothing, writes no file, and ends with the pipe that its requests come from.
"""

import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, TypeVar

from fne.core.errors import InputError

VALUE, CONTENT, END, REFUSED, MEMORY = range(5)
FRAME = struct.Struct("!BQ")  # one of these, and the length of what follows
# What reading a frame raises if a child has ended, or sends something else than frames.
BROKEN = (EOFError, OSError, MemoryError, OverflowError, RecursionError, ValueError)
# Items that are given to the threads of `crash_proof_map` together.
BATCH = 256

Item = TypeVar("Item")


class StalledError(Exception):
    """The next item took too long."""


class TooLargeError(Exception):
    """The work needs more memory than it may allocate."""


class CrashedError(Exception):
    """The process ended before its work."""


class Worker:
    """One child process; `memory` is how many bytes its work may allocate, 0 for any number."""

    def __init__(self, memory: int = 0) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-P", "-m", "fne.core.isolation", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries print about damaged files
            start_new_session=True,  # Ctrl-C is for the parent
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.alive = True

    def call(
        self, work: Callable[..., Iterable[Any]], arguments: tuple[Any, ...], seconds: float | None = None
    ) -> Generator[Any, None, None]:
        """Yield what `work(*arguments)` yields in the process; `seconds` is the limit for each item.

        Raises:
            TooLargeError: if it needs more memory.
            StalledError: if an item takes longer; the process is killed.
            CrashedError: if the process ends before the work does.
        """
        late = threading.Event()
        in_step = False
        try:
            with self._deadline(seconds, late):
                assert self._process.stdin
                self._process.stdin.write(pickle.dumps((work, arguments)))
                self._process.stdin.flush()
            while True:
                with self._deadline(seconds, late):
                    kind, content = self._receive()
                in_step = kind in (END, REFUSED, MEMORY)
                if kind == END:
                    return
                if kind == REFUSED:
                    raise InputError(content.decode(errors="replace"))
                if kind == MEMORY:
                    raise TooLargeError
                yield content if kind == CONTENT else json.loads(content)
        except BROKEN:
            raise (StalledError if late.is_set() else CrashedError) from None
        finally:
            if not in_step:  # nobody knows what it would send next
                self.kill()

    def kill(self) -> None:
        """End the process."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):  # when the rest cannot be sent
                    stream.close()

    @contextmanager
    def _deadline(self, seconds: float | None, late: threading.Event) -> Iterator[None]:
        if seconds is None:
            yield
            return

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _receive(self) -> tuple[int, bytes]:
        assert self._process.stdout
        kind, length = FRAME.unpack(_read(self._process.stdout, FRAME.size))
        return kind, _read(self._process.stdout, length)


class Workers:
    """Child processes, started when they are needed, for calls from several threads."""

    def __init__(self, processes: int, memory: int = 0) -> None:
        self._memory = memory
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(processes):
            self._idle.put(None)

    def call(
        self, work: Callable[..., Iterable[Any]], arguments: tuple[Any, ...], seconds: float | None = None
    ) -> list[Any]:
        """Return the items of `work(*arguments)`; raises as `Worker.call` does."""
        worker = self._idle.get()
        try:
            worker = worker or Worker(self._memory)
            return list(worker.call(work, arguments, seconds))
        finally:
            self._idle.put(worker if worker and worker.alive else None)

    def close(self) -> None:
        """End the idle processes; those at work end with their call."""
        with suppress(Empty):
            while True:
                worker = self._idle.get_nowait()
                if worker:
                    worker.kill()


def run_in_subprocess(
    work: Callable[..., Iterable[Any]], arguments: tuple[Any, ...], seconds: float, memory: int = 0
) -> Generator[Any, None, None]:
    """Yield what `work(*arguments)` yields in a process of its own; limits and errors are as in `Worker`."""
    worker = Worker(memory)
    try:
        list(worker.call(_import, (work,)))  # so the start takes no time of the work
        yield from worker.call(work, arguments, seconds)
    finally:
        worker.kill()


def crash_proof_map(
    work: Callable[[Item], Any], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Any]]:
    """Yield each item with `work(item)`, which must not raise, or with None if its process died.

    It dies if a library crashes, or memory runs out. With 0 or 1 workers, this process does the work.
    """
    if workers <= 1:
        yield from ((item, work(item)) for item in items)
        return
    pool = Workers(workers)
    threads = ThreadPoolExecutor(workers)

    def attempt(item: Item) -> tuple[Item, Any]:
        try:
            [result] = pool.call(_apply, (work, item))
        except (CrashedError, TooLargeError):
            return item, None
        return item, result

    try:
        for start in range(0, len(items), BATCH):
            yield from threads.map(attempt, items[start : start + BATCH])
    finally:
        threads.shutdown(cancel_futures=True)
        pool.close()


def serve(requests: IO[bytes], replies: IO[bytes], memory: int) -> None:
    """Answer requests until they end."""
    limited = False
    while True:
        try:
            work, arguments = pickle.load(requests)  # noqa: S301  # the parent wrote it
        except EOFError:
            return
        if not limited:  # what was imported for the work does not count
            _limit(memory)
            limited = True
        try:
            for item in work(*arguments):
                if isinstance(item, bytes | bytearray | memoryview):
                    _reply(replies, CONTENT, memoryview(item))
                else:
                    _reply(replies, VALUE, json.dumps(item, default=asdict).encode())
            _reply(replies, END)
        except InputError as error:
            _reply(replies, REFUSED, error.message.encode(errors="replace"))
        except MemoryError:
            _reply(replies, MEMORY)


def _import(work: Callable[..., Iterable[Any]]) -> Iterator[Any]:
    return iter(())


def _apply(work: Callable[[Item], Any], item: Item) -> Iterator[Any]:
    yield work(item)


def _reply(replies: IO[bytes], kind: int, content: bytes | memoryview = b"") -> None:
    replies.write(FRAME.pack(kind, len(content)))
    replies.write(content)
    replies.flush()


def _read(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) != length:
        raise EOFError
    return content


def _limit(memory: int) -> None:
    """Let this process write no file and allocate so much more memory; without /proc, memory has no limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not memory:
        return
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = used + memory
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most)
        )


def main() -> None:
    """Answer the requests on standard input, which nothing else may read, on standard output, likewise."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    serve(requests, replies, int(sys.argv[1]))


if __name__ == "__main__":
    main()
