import fcntl
import os
import pty
import struct
import sys
import termios

import pytest

from fne.core import progress as subject
from fne.core.progress import MIN_WIDTH, Progress, has_room_for_a_bar, progress, tracked
from fne.core.terminal import BYTES


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def lines(capsys):
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("title", "options", "seconds", "update", "line"),
    [
        ("extract", {"total": 1000, "unit": "image"}, 60, (90, "2 workers"),
         "extract: 90 of 1,000 images (9%), 1.50 images/s, 10 min 7 s left, 2 workers"),
        ("extract", {"total": 1000, "done": 800, "unit": "image"}, 100, (50,),
         "extract: 850 of 1,000 images (85%), 0.50 images/s, 5 min 0 s left"),
        ("verifying", {"total": 4_000_000, "unit": BYTES}, 100, (1_000_000,),
         "verifying: 1.0 of 4.0 MB (25%), 0.0 MB/s, 5 min 0 s left"),
        ("extract", {"total": 0}, 0, None, "extract: 0 of 0 items"),
        ("verifying a\x1b[2J", {"total": 1}, 0, None, "verifying a\\u001b[2J: 0 of 1 items (0%)"),
    ],
)  # fmt: skip
def test_a_line_says_what_is_done_how_fast_and_how_long_it_still_takes(
    clock, capsys, title, options, seconds, update, line
):
    """The rate does not count what an earlier run did."""
    work = Progress("", clock=clock, **options)
    clock.now += seconds
    work.rename(title)
    work.update(*update) if update else work.mark()
    assert lines(capsys) == [line]


def test_there_is_a_line_per_minute_and_a_last_one_but_none_of_short_work(clock, capsys):
    def work(steps, total):
        progress = Progress("extract", total, unit="image", clock=clock)
        for _ in range(steps):
            clock.now += 1
            progress.update()
        progress.close()
        return lines(capsys)

    printed = [line.partition(" of ")[0] for line in work(300, 1000)]
    assert printed == [f"extract: {done}" for done in (60, 120, 180, 240, 300)]
    assert work(70, 70)[-1] == "extract: 70 of 70 images (100%), 1.00 images/s"
    assert work(50, 50) == []


def test_a_mark_prints_a_line_at_once(clock, capsys):
    work = Progress("train", 40, unit="step", at_most=True, clock=clock)
    clock.now += 2
    work.update(10)
    work.mark("epoch 1/4")
    work.close()
    assert lines(capsys) == ["train: 10 of 40 steps (25%), 5.00 steps/s, at most 6 s left, epoch 1/4"]


def test_a_log_file_gets_lines(monkeypatch, capsys):
    monkeypatch.setattr(subject, "SECONDS", 0.0)
    assert list(tracked(iter("ab"), "decoding", 2, "image")) == ["a", "b"]
    assert [line.partition(",")[0] for line in lines(capsys)] == [
        "decoding: 1 of 2 images (50%)",
        "decoding: 2 of 2 images (100%)",
    ]


def test_only_the_first_process_prints(monkeypatch, capsys):
    monkeypatch.setattr(subject, "SECONDS", 0.0)
    with progress("train", 3, shown=False) as shown:
        shown.update()
        shown.mark("epoch 1/1")
    assert lines(capsys) == []


@pytest.mark.parametrize(
    ("columns", "term", "bar"),
    [(MIN_WIDTH, "xterm", True), (MIN_WIDTH - 1, "xterm", False), (0, "xterm", False), (200, "dumb", False)],
)
def test_a_bar_needs_a_terminal_that_is_wide_enough(monkeypatch, columns, term, bar):
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(terminal, "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        monkeypatch.setenv("TERM", term)
        assert has_room_for_a_bar() is bar
        with progress("extract", 5, unit="image", leave=False) as shown:
            shown.rename("extract")
            shown.update(status="working")
            shown.mark("done")
            shown.clear()
        file.flush()
        written = os.read(main, 10_000).decode() if bar else ""
    os.close(main)
    assert ("extract:" in written) is bar


def test_a_closed_standard_error_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert not has_room_for_a_bar()
