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


def test_a_line_says_what_is_done_how_fast_and_how_long_it_still_takes(clock, capsys):
    work = Progress("extract", 1000, unit="image", clock=clock)
    clock.now += 60
    work.update(90, "2 workers")
    assert lines(capsys) == ["extract: 90 of 1,000 images (9%), 1.50 images/s, 10 min 7 s left, 2 workers"]


def test_there_is_a_line_per_minute_and_no_more(clock, capsys):
    work = Progress("extract", 1000, unit="image", clock=clock)
    for _ in range(300):
        clock.now += 1
        work.update()
    work.close()
    printed = lines(capsys)
    assert [line.partition(" of ")[0] for line in printed] == [
        f"extract: {done}" for done in (60, 120, 180, 240, 300)
    ]


def test_the_last_line_says_that_all_is_done(clock, capsys):
    work = Progress("extract", 70, unit="image", clock=clock)
    for _ in range(70):
        clock.now += 1
        work.update()
    work.close()
    assert lines(capsys)[-1] == "extract: 70 of 70 images (100%), 1.00 images/s"


def test_short_work_prints_nothing(clock, capsys):
    work = Progress("extract", 50, clock=clock)
    for _ in range(50):
        clock.now += 1
        work.update()
    work.close()
    assert lines(capsys) == []


def test_a_mark_prints_a_line_at_once(clock, capsys):
    work = Progress("train", 40, unit="step", at_most=True, clock=clock)
    clock.now += 2
    work.update(10)
    work.mark("epoch 1/4")
    work.close()
    assert lines(capsys) == ["train: 10 of 40 steps (25%), 5.00 steps/s, at most 6 s left, epoch 1/4"]


def test_the_rate_does_not_count_what_an_earlier_run_did(clock, capsys):
    work = Progress("extract", 1000, done=800, unit="image", clock=clock)
    clock.now += 100
    work.update(50)
    assert lines(capsys) == ["extract: 850 of 1,000 images (85%), 0.50 images/s, 5 min 0 s left"]


def test_bytes_are_counted_in_megabytes(clock, capsys):
    work = Progress("verifying", 4_000_000, unit=BYTES, clock=clock)
    clock.now += 100
    work.rename("verifying features")
    work.update(1_000_000)
    assert lines(capsys) == ["verifying features: 1.0 of 4.0 MB (25%), 0.0 MB/s, 5 min 0 s left"]


def test_work_without_items_has_a_line_too(clock, capsys):
    Progress("extract", 0, clock=clock).mark()
    assert lines(capsys) == ["extract: 0 of 0 items"]


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


def test_control_characters_of_a_title_do_not_reach_the_terminal(clock, capsys):
    Progress("verifying a\x1b[2J", 1, clock=clock).mark()
    assert lines(capsys) == ["verifying a\\u001b[2J: 0 of 1 items (0%)"]


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
