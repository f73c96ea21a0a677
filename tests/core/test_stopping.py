import os
import signal

from fne.core.stopping import TERMINATED, noting_termination


def test_a_termination_is_noted_and_does_not_end_the_process():
    before = signal.getsignal(signal.SIGTERM)
    with noting_termination() as stopping:
        assert not stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping()
    assert signal.getsignal(signal.SIGTERM) is before
    assert TERMINATED == 143
