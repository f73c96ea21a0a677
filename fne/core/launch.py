"""Start a stage in one process, or in several with torchrun.

The environment variables of torchrun (`PET_NPROC_PER_NODE`, `PET_NNODES`, …) decide how many processes there
are, so the command of a stage and its hash in DVC stay the same.

After any failure torchrun restarts all processes, and a user error would recur every time. So the failing
process records the message, all processes exit cleanly, and the one that started torchrun prints it.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fne.core.errors import InputError
from fne.core.terminal import say

# The folder in which processes record how they ended.
OUTCOMES = "FNE_OUTCOMES"
# The id of the process that started torchrun.
LAUNCHER = "FNE_LAUNCHER"
# How long a process that has lost the connection waits for another one to record the reason.
GRACE_SECONDS = 5.0
# How often torchrun restarts all processes after a crash, unless PET_MAX_RESTARTS is set.
RESTARTS = 3


def start(command: click.Command) -> None:
    """Run the command of a stage."""
    if OUTCOMES in os.environ:
        _run_worker(command)
    elif "TORCHELASTIC_RUN_ID" not in os.environ and _wants_several_processes():
        launcher = click.Command(command.name, callback=lambda: sys.exit(_launch(_module(), sys.argv[1:])))
        launcher(args=[])
    else:
        command()


def _wants_several_processes() -> bool:
    processes, nodes = (os.environ.get(f"PET_{name}", "1") for name in ("NPROC_PER_NODE", "NNODES"))
    return processes != "1" or nodes not in ("1", "1:1")


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    if spec is None:
        raise InputError("several processes need a module: run `python -m stages.NAME`")
    return spec.name


def _launch(module: str, arguments: list[str]) -> int:
    """Run a module under torchrun; return its exit code."""
    from torch.distributed.elastic.multiprocessing.api import SignalException  # torch: slow to import
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    os.environ.setdefault("PET_MAX_RESTARTS", str(RESTARTS))
    # With one store for all attempts, restarted processes would wait for those that died.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    requested = os.environ.get("PET_NPROC_PER_NODE", "1")
    if requested.isdigit():
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // max(1, int(requested)))))
    several_nodes = os.environ.get("PET_NNODES", "1") not in ("1", "1:1")
    # On one machine torchrun chooses a free port, so several runs do not collide.
    standalone = [] if several_nodes or "PET_RDZV_ENDPOINT" in os.environ else ["--standalone"]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = str(Path(folder) / "outcomes")
        Path(outcomes).mkdir()
        os.environ |= {OUTCOMES: outcomes, LAUNCHER: str(os.getpid())}
        try:
            run(parse_args([*standalone, "-m", module, *arguments]))  # type: ignore[no-untyped-call]
            code = 0
        except (RendezvousError, ValueError) as error:
            raise InputError(f"torchrun's variables (PET_…) are wrong: {error}") from None
        except SignalException as stopped:
            if stopped.sigval == signal.SIGINT:
                raise click.Abort from None
            code = 128 + stopped.sigval
        except ChildFailedError:
            restarts = os.environ["PET_MAX_RESTARTS"]
            say(f"processes died, also after {restarts} restarts; see the messages above", err=True)
            code = 1
        return _print_outcome(Path(outcomes)) or code


def _print_outcome(outcomes: Path) -> int:
    """Print the error of the lowest rank that recorded one; return its exit code, or 0."""
    for path in sorted(outcomes.iterdir(), key=lambda path: int(path.stem)):
        outcome = json.loads(path.read_text())
        say(f"Error: {outcome['message']}", err=True)
        return int(outcome["code"])
    return 0


def _run_worker(command: click.Command) -> None:
    """Run the command as one of torchrun's processes."""
    from torch.distributed import DistError  # torch: slow to import

    _die_with_launcher()
    outcomes, rank = Path(os.environ[OUTCOMES]), os.environ["RANK"]
    if any(outcomes.iterdir()):  # left by an earlier attempt
        return
    try:
        command(standalone_mode=False)
    except click.Abort:
        raise SystemExit(1) from None
    except click.ClickException as error:
        _record_outcome(outcomes, rank, {"code": error.exit_code, "message": error.format_message()})
    except RuntimeError as error:
        if "gloo" not in str(error) and not isinstance(error, DistError):
            raise
        # A traceback of this process would hide the reason, which another process records.
        if not _wait_for(lambda: any(outcomes.iterdir()), GRACE_SECONDS):
            say(f"process {rank} has lost the connection to the others", err=True)
            raise SystemExit(1) from None


def _record_outcome(outcomes: Path, rank: str, outcome: dict[str, Any]) -> None:
    """Write an outcome atomically, for the launcher and for processes that wait for this one."""
    temporary = outcomes.parent / f"{outcomes.name}-{rank}"
    temporary.write_text(json.dumps(outcome))
    temporary.rename(outcomes / f"{rank}.json")


def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def _die_with_launcher() -> None:
    """Let the system kill this process when torchrun dies: otherwise it would keep running and hold locks."""
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]  # torch: slow to import

    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    if os.getppid() != int(os.environ[LAUNCHER]):  # it has ended already
        raise SystemExit(1)
