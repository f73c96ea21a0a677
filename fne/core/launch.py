"""A stage in one process or in several: torchrun starts those that its own variables ask for.

`PET_NPROC_PER_NODE`, `PET_NNODES` and the rest are torchrun's; a stage's command stays the same
with and without them, and so does its hash in DVC.

To torchrun every failure is a crash, after which all processes start over. What a user
has to mend would only happen again: a process that meets it writes it down, all of them end
in peace, and the one that started torchrun tells the user.
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

# Where processes write down how they ended.
OUTCOMES = "FNE_OUTCOMES"
# The process that started torchrun.
LAUNCHER = "FNE_LAUNCHER"
# How long a process that has lost the others waits for one of them to say why.
GRACE_SECONDS = 5.0
# How often all processes start over after one of them has died, unless PET_MAX_RESTARTS says otherwise.
RESTARTS = 3


def start(command: click.Command) -> None:
    """Run the command of a stage."""
    if OUTCOMES in os.environ:
        _take_part(command)
    elif "TORCHELASTIC_RUN_ID" not in os.environ and _several_are_asked_for():
        launcher = click.Command(command.name, callback=lambda: sys.exit(_launch(_module(), sys.argv[1:])))
        launcher(args=[])
    else:
        command()


def _several_are_asked_for() -> bool:
    processes, nodes = (os.environ.get(f"PET_{name}", "1") for name in ("NPROC_PER_NODE", "NNODES"))
    return processes != "1" or nodes not in ("1", "1:1")


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    if spec is None:
        raise InputError("several processes need a module: run `python -m stages.NAME`")
    return spec.name


def _launch(module: str, arguments: list[str]) -> int:
    """Run a module under torchrun; return its exit code."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    os.environ.setdefault("PET_MAX_RESTARTS", str(RESTARTS))
    # With one store for all attempts, processes that start over would look for those that died.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    asked = os.environ.get("PET_NPROC_PER_NODE", "1")
    if asked.isdigit():
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // max(1, int(asked)))))
    several_nodes = os.environ.get("PET_NNODES", "1") not in ("1", "1:1")
    # On one machine no port need be agreed on, so several runs do not meet.
    alone = [] if several_nodes or "PET_RDZV_ENDPOINT" in os.environ else ["--standalone"]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = str(Path(folder) / "outcomes")
        Path(outcomes).mkdir()
        os.environ |= {OUTCOMES: outcomes, LAUNCHER: str(os.getpid())}
        try:
            run(parse_args([*alone, "-m", module, *arguments]))  # type: ignore[no-untyped-call]
            code = 0
        except (RendezvousError, ValueError) as error:
            raise InputError(f"torchrun's variables (PET_…) are wrong: {error}") from None
        except SignalException as stopped:
            if stopped.sigval == signal.SIGINT:
                raise click.Abort from None
            code = 128 + stopped.sigval
        except ChildFailedError:
            tries = os.environ["PET_MAX_RESTARTS"]
            click.echo(f"processes died, also after starting over {tries} times; see above", err=True)
            code = 1
        return _told(Path(outcomes)) or code


def _told(outcomes: Path) -> int:
    """Tell what a process has written down, the same as the others as a rule; return the exit code."""
    for path in sorted(outcomes.iterdir(), key=lambda path: int(path.stem)):
        outcome = json.loads(path.read_text())
        click.echo(f"Error: {outcome['message']}", err=True)
        return int(outcome["code"])
    return 0


def _take_part(command: click.Command) -> None:
    """Be one of the processes."""
    from torch.distributed import DistError

    _end_with_launcher()
    outcomes, rank = Path(os.environ[OUTCOMES]), os.environ["RANK"]
    if any(outcomes.iterdir()):  # of an earlier attempt
        return
    try:
        command(standalone_mode=False)
    except click.Abort:
        raise SystemExit(1) from None
    except click.ClickException as error:
        _write_down(outcomes, rank, {"code": error.exit_code, "message": error.format_message()})
    except RuntimeError as error:
        if "gloo" not in str(error) and not isinstance(error, DistError):
            raise
        # Where it happened in this process does not matter, and would bury the reason.
        if not _within(GRACE_SECONDS, lambda: any(outcomes.iterdir())):
            click.echo(f"process {rank} has lost the others", err=True)
            raise SystemExit(1) from None


def _write_down(outcomes: Path, rank: str, outcome: dict[str, Any]) -> None:
    """Leave an outcome, whole, for the launcher and for the processes that wait for this one."""
    temporary = outcomes.parent / f"{outcomes.name}-{rank}"
    temporary.write_text(json.dumps(outcome))
    temporary.rename(outcomes / f"{rank}.json")


def _within(seconds: float, happens: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happens():
            return True
        time.sleep(0.1)
    return happens()


def _end_with_launcher() -> None:
    """Ask for an end together: processes whose torchrun was killed would go on, and hold their locks."""
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    if os.getppid() != int(os.environ[LAUNCHER]):  # it has ended already
        raise SystemExit(1)
