"""Compiled loops on all cores."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def share_out(work: Callable[[int, int], object], count: int) -> None:
    """Call `work(first, last)` for equal shares of `count` items, one for each thread that numba may use.

    The threads are plain ones, since the loops release the interpreter's lock: numba's own
    end the process when it forks, or when two callers use them at once.
    """
    import numba

    threads = max(1, min(numba.get_num_threads(), count))
    bounds = [count * share // threads for share in range(threads + 1)]
    if threads == 1:
        work(0, count)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))
