"""Progress of long work, on standard error: a bar on a terminal, and lines everywhere else.

A log file, a batch system or a terminal without room for a bar gets a line per minute, and one wherever the
work has reached a mark, such as the end of an epoch. It says what is done, how fast it goes and how long it
still takes. Work of less than a minute prints no line, unless it has marks.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fne.core.terminal import BYTES, format_rate, format_time, say

# Between two lines that no mark asked for.
SECONDS = 60.0
# The columns that a bar needs to show more than its title.
MIN_WIDTH = 60

Item = TypeVar("Item")


class Progress:
    """The progress of one piece of work; `progress` makes it."""

    def __init__(
        self,
        title: str,
        total: int,
        done: int = 0,
        unit: str = "item",
        at_most: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title = title
        self.total = total
        self.done = done
        self.unit = unit
        self._at_most = at_most
        self._clock = clock
        self._started = self._printed = clock()
        self._before = done
        self._status = ""
        self._last: int | None = None  # what the last line counted

    def update(self, count: int = 1, status: str | None = None) -> None:
        """Count finished items; a `status` stays until the next one."""
        self.done += count
        if status is not None:
            self._status = status
        if self._clock() - self._printed >= SECONDS:
            self._print()

    def mark(self, status: str | None = None) -> None:
        """Print a line now, because the work has reached something worth a line."""
        if status is not None:
            self._status = status
        self._print()

    def rename(self, title: str) -> None:
        """Show what is done now."""
        self.title = title

    def clear(self) -> None:
        """Make room for a message of the work itself."""

    def close(self) -> None:
        """Print the last line, if there were others."""
        if self._last is not None and self.done != self._last:
            self._print()

    def line(self) -> str:
        """Return what is done, how fast it goes and how long it still takes."""
        passed, new = self._clock() - self._started, self.done - self._before
        parts = [f"{self.title}: {self._counted()}"]
        if new and passed > 0:
            parts.append(format_rate(new / passed, self.unit))
            left = self.total - self.done
            if left > 0:
                limit = "at most " if self._at_most else ""
                parts.append(f"{limit}{format_time(left * passed / new)} left")
        return ", ".join([*parts, *[self._status] * bool(self._status)])

    def _counted(self) -> str:
        percentage = f" ({self.done / self.total:.0%})" if self.total else ""
        if self.unit == BYTES:
            return f"{self.done / 1e6:,.1f} of {self.total / 1e6:,.1f} MB{percentage}"
        return f"{self.done:,} of {self.total:,} {self.unit}s{percentage}"

    def _print(self) -> None:
        self._printed, self._last = self._clock(), self.done
        say(self.line(), err=True)


class _Bar(Progress):
    """The same as a bar of tqdm, which estimates the time itself."""

    def __init__(self, *arguments: Any, leave: bool, **options: Any) -> None:
        from tqdm import tqdm  # tqdm: slow to import

        super().__init__(*arguments, **options)
        self._bar: Any = tqdm(
            total=self.total,
            initial=self.done,
            desc=self.title,
            unit=self.unit,
            unit_scale=self.unit == BYTES,
            dynamic_ncols=True,
            leave=leave,
        )

    def update(self, count: int = 1, status: str | None = None) -> None:
        self.done += count
        if status is not None:
            self._bar.set_postfix_str(status, refresh=False)
        self._bar.update(count)

    def mark(self, status: str | None = None) -> None:
        if status is not None:
            self._bar.set_postfix_str(status)

    def rename(self, title: str) -> None:
        super().rename(title)
        self._bar.set_description(title)

    def clear(self) -> None:
        self._bar.clear()

    def close(self) -> None:
        self._bar.close()


class _Hidden(Progress):
    """Counts without printing, for all processes but the first."""

    def _print(self) -> None:
        self._printed = self._clock()


@contextmanager
def progress(
    title: str,
    total: int,
    done: int = 0,
    unit: str = "item",
    at_most: bool = False,
    leave: bool = True,
    shown: bool = True,
) -> Iterator[Progress]:
    """Show the progress of the block, as a bar or as lines.

    Args:
        done: how many of them earlier runs have finished.
        unit: what an item is, in the singular; `B` counts bytes.
        at_most: whether the work may end before all items are done.
        leave: whether a bar stays on the terminal when it is full.
    """
    if not shown:
        yield _Hidden(title, total, done, unit, at_most)
        return
    if has_room_for_a_bar():
        found: Progress = _Bar(title, total, done, unit, at_most, leave=leave)
    else:
        found = Progress(title, total, done, unit, at_most)
    try:
        yield found
    finally:
        found.close()


def tracked(
    items: Iterable[Item], title: str, total: int, unit: str = "item", leave: bool = True
) -> Iterator[Item]:
    """Yield all items, and show how many have been consumed."""
    with progress(title, total, unit=unit, leave=leave) as shown:
        for item in items:
            yield item
            shown.update()


def has_room_for_a_bar() -> bool:
    """Return whether standard error is a terminal that is wide enough."""
    try:
        if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            return False
        # Not `shutil.get_terminal_size`: it asks standard output, and guesses where the width is 0.
        return os.get_terminal_size(sys.stderr.fileno()).columns >= MIN_WIDTH
    except (OSError, ValueError, AttributeError):  # closed, or replaced by an object without a file
        return False
