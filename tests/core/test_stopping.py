import os
import signal

import pytest

from fne.core.stopping import TERMINATED, StoppedError, noting_termination


def test_a_termination_is_noted_and_does_not_end_the_process():
    before = signal.getsignal(signal.SIGTERM)
    with noting_termination(pytest.fail) as stopping:
        assert not stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping()
    assert signal.getsignal(signal.SIGTERM) is before
    assert TERMINATED == 143


def test_work_that_has_saved_ends_as_if_terminated_and_says_that_it_can_go_on():
    before, said = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(SystemExit) as ended, noting_termination(said.append):
        raise StoppedError
    assert (ended.value.code, said) == (143, ["terminated; run it again to go on from here"])
    assert signal.getsignal(signal.SIGTERM) is before
