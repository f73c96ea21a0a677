"""Commands in forked children that may be killed: `printed` in the current folder holds what they print."""

import os
import sys
import time
import traceback
from collections.abc import Callable


def run_forked(
    command: Callable[[], object], kill: int | None = None, after: float | Callable[[], bool] = 0.0
) -> int:
    """Run a command in a forked child; return its exit code, or minus the signal that ended it.

    Args:
        command: what to run; it ends with its return, or with SystemExit.
        kill: a signal to send, if the child still runs then.
        after: how many seconds after the start, or what must have happened.
    """
    child = os.fork()
    if child == 0:
        os.dup2(os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        # A test runner may have replaced these by buffers.
        sys.stdout, sys.stderr = (open(file, "w", closefd=False) for file in (1, 2))  # noqa: SIM115
        code = 1
        try:
            command()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if kill is not None:
        start = time.monotonic()
        while not (after() if callable(after) else time.monotonic() >= start + after):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, kill)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
