import os
import signal
from threading import Thread

import pytest

from fne.core.signals import (
    CONTINUES,
    TERMINATED,
    StoppedError,
    exit_on_sigterm,
    explain_interrupt,
    graceful_stop,
)


@pytest.fixture(autouse=True)
def restored():
    """All handlers are the same afterwards, whatever happens."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_sigterm_is_delayed_and_does_not_end_the_process():
    with graceful_stop(pytest.fail) as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
    assert TERMINATED == 143


def test_work_that_has_saved_its_state_ends_as_if_terminated_and_says_that_it_can_continue():
    logged = []
    with pytest.raises(SystemExit) as ended, graceful_stop(logged.append):
        raise StoppedError
    assert (ended.value.code, logged) == (143, [f"terminated; {CONTINUES}"])


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_is_delayed_until_the_work_exits_with_the_code_that_a_shell_reports(number, error):
    with pytest.raises(error) as ended, graceful_stop() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        stop.exit()
    assert error is KeyboardInterrupt or ended.value.code == 143


def test_ctrl_c_ends_saved_work_as_ctrl_c_does():
    with pytest.raises(KeyboardInterrupt), graceful_stop():
        os.kill(os.getpid(), signal.SIGINT)
        raise StoppedError


def test_only_the_named_signals_are_delayed():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), graceful_stop(signals=[signal.SIGTERM]):
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("Ctrl-C was delayed")
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_leaves_signals_alone():
    found: list[bool] = []

    def run():
        before = signal.getsignal(signal.SIGTERM)
        with graceful_stop() as stop, exit_on_sigterm() as install:
            install()
            found.append(stop() or signal.getsignal(signal.SIGTERM) is not before)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False]


def test_the_handler_of_a_library_is_replaced_and_the_first_one_restored():
    with pytest.raises(SystemExit) as ended, exit_on_sigterm() as install:
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(1))  # as Ray does when it starts
        install()
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143


@pytest.mark.parametrize("rank", [None, "0", "1"])
def test_an_interrupt_says_once_that_the_same_command_continues(monkeypatch, capsys, rank):
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(KeyboardInterrupt), explain_interrupt():
        raise KeyboardInterrupt
    line = "interrupted; finished work is kept, and the same command continues from there\n"
    assert capsys.readouterr().err == ("" if rank == "1" else line)
