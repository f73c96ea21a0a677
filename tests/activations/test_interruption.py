import os
import signal
from threading import Thread

import pytest

from fne.activations.interruption import noting_interruption


def test_a_signal_waits_until_it_is_followed():
    with noting_interruption() as interruption:
        assert not interruption.came
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.came
        with pytest.raises(KeyboardInterrupt):
            interruption.follow()


def test_termination_ends_with_the_code_that_a_shell_reports():
    with noting_interruption() as interruption, pytest.raises(SystemExit) as caught:
        os.kill(os.getpid(), signal.SIGTERM)
        interruption.follow()
    assert caught.value.code == 143


def test_afterwards_signals_are_as_before():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with noting_interruption():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_another_thread_leaves_signals_alone():
    noted: list[bool] = []

    def run():
        with noting_interruption() as interruption:
            noted.append(interruption.came)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert noted == [False]
