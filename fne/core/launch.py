"""A stage in one process or in several: torchrun starts those that its own variables ask for.

`PET_NPROC_PER_NODE`, `PET_NNODES` and the rest are torchrun's; a stage's command stays the same
with and without them, and so does its hash in DVC.

To torchrun every failure is a crash, after which all processes start over. What a user
has to mend, or has asked for, would only happen again: a process writes that down and ends
in peace, and the one that started torchrun tells the user.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import click

from fne.core.errors import InputError

# Where processes write down how they ended.
OUTCOMES = "FNE_OUTCOMES"
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
    with tempfile.TemporaryDirectory() as outcomes:
        os.environ[OUTCOMES] = outcomes
        try:
            run(parse_args([*alone, "-m", module, *arguments]))  # type: ignore[no-untyped-call]
            code = 0
        except ValueError as error:
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
        if outcome["message"]:
            click.echo(f"Error: {outcome['message']}", err=True)
        return int(outcome["code"])
    return 0


def _take_part(command: click.Command) -> None:
    """Be one of the processes."""
    from torch.distributed import DistError
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

    # Otherwise processes whose torchrun was killed would go on, and hold their locks.
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    path = Path(os.environ[OUTCOMES]) / f"{os.environ['RANK']}.json"
    path.unlink(missing_ok=True)
    try:
        command(standalone_mode=False)
    except click.Abort:
        raise SystemExit(1) from None
    except click.ClickException as error:
        path.write_text(json.dumps({"code": error.exit_code, "message": error.format_message()}))
    except SystemExit as ended:
        path.write_text(json.dumps({"code": ended.code, "message": ""}))
    except RuntimeError as error:
        if "gloo" not in str(error) and not isinstance(error, DistError):
            raise
        # Where it happened in this process does not matter, and would bury the reason.
        click.echo(f"process {os.environ['RANK']} has lost the others", err=True)
        raise SystemExit(1) from None
