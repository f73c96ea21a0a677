"""Work on files in several processes that outlives the death of any of them.

A decoder that crashes on a poisonous file, or that the system kills for its hunger,
takes its process and Python's whole pool along. The files that were under way then go
through a process of their own, one at a time, until the culprit is found. Ctrl-C is left
to the parent, or every process would print a traceback of its own.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

BATCH = 256

Result = TypeVar("Result")


def in_processes(
    work: Callable[[Path], Result], paths: Sequence[Path], workers: int
) -> Iterator[tuple[Path, Result | None]]:
    """Yield each path with `work(path)`, or with None if the process that did it died.

    Args:
        work: a function of a module, which must not raise.
        paths: what to work on.
        workers: the number of processes; with 0 or 1 the work is done in this one.
    """
    if workers <= 1:
        yield from ((path, work(path)) for path in paths)
        return
    pool = _pool(min(workers, len(paths)))
    try:
        for start in range(0, len(paths), BATCH):
            suspects = []
            futures = [(path, _submit(pool, work, path)) for path in paths[start : start + BATCH]]
            for path, future in futures:
                try:
                    yield path, future.result()
                except BrokenProcessPool:
                    suspects.append(path)
            if suspects:
                pool.shutdown(cancel_futures=True)
                yield from _one_by_one(work, suspects)
                pool = _pool(workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_by_one(work: Callable[[Path], Result], paths: list[Path]) -> Iterator[tuple[Path, Result | None]]:
    pool = _pool(1)
    try:
        for path in paths:
            try:
                yield path, _submit(pool, work, path).result()
            except BrokenProcessPool:
                yield path, None
                pool.shutdown(cancel_futures=True)
                pool = _pool(1)
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, work: Callable[[Path], Result], path: Path) -> Future[Result]:
    # Submitting may start a process, which inherits what is blocked from its first instruction on.
    # Here a blocked Ctrl-C only waits; were it ignored, it would be lost.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, path)
    except BrokenProcessPool as error:  # an earlier file has broken the pool already
        future: Future[Result] = Future()
        future.set_exception(error)
        return future
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not "fork": a copy of a process with threads may wait forever for a lock.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max(1, workers), mp_context=context)
