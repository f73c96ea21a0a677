"""Processes that train together and are killed again and again: `python -m tests.faults.torchrun --help`.

The tests run a small version.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click

from fne.training.finished_runs import FOLDER as FINISHED
from tests.faults.eager_training import HOLD
from tests.faults.training import history, prepare_matching
from tests.support.imports import ROOT
from tests.support.stages import COMMANDS

LIMIT = 300  # seconds; a run takes about 20 here


class Group:
    """The stage in several processes, under torchrun; with `held` it waits after some steps, until `lift`."""

    def __init__(
        self, folder: Path, output: str, processes: int, held: bool = False, **environment: str
    ) -> None:
        self._hold = folder / HOLD
        if held:
            self._hold.touch()
        self.output = folder / output
        outs = [f"{output}/{each}" for each in ("model", "history", "metrics.json")]
        arguments = [*COMMANDS["train"].split()[:3], *outs]
        self.output.mkdir(exist_ok=True)
        # Otherwise the result of a training that has finished before would be used.
        shutil.rmtree(folder / ".fne" / FINISHED, ignore_errors=True)
        variables = {"PET_NPROC_PER_NODE": str(processes), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (self.output / "printed").open("w") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.eager_training", *arguments],
                cwd=folder, env=os.environ | variables | environment, stdout=printed, stderr=printed,
            )  # fmt: skip

    def lift(self) -> None:
        """Let a held training continue."""
        self._hold.unlink()

    def workers(self) -> list[int]:
        """Return the processes that train."""
        try:
            return [
                int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            ]
        except FileNotFoundError:
            return []

    @property
    def pid(self) -> int:
        """The process that started torchrun."""
        return self.process.pid

    def wait(self) -> int:
        """Return the exit code."""
        return self.process.wait(timeout=LIMIT)

    def printed(self) -> str:
        """Return what all processes printed."""
        return (self.output / "printed").read_text()

    def wait_until(self, steps: int) -> None:
        """Wait until a checkpoint of at least this many steps was written."""
        scratch, end = self.output.parent / ".fne" / "training", time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            saved = [int(path.stem) for path in scratch.rglob("[0-9]*.safetensors")]
            if max(saved, default=0) >= steps:
                return
            time.sleep(0.02)
        raise AssertionError(f"training did not come to step {steps}: {self.printed()}")


def kill(pid: int) -> None:
    """Kill a process that may have ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@click.command()
@click.option("--processes", default=2, show_default=True)
@click.option("--kills", default=20, show_default=True, help="How often to kill one of the processes.")
@click.option("--launcher-kills", default=5, show_default=True, help="How often to kill what started them.")
@click.option("--epochs", default=30, show_default=True, help="Epochs of each of the two phases.")
@click.option("--seed", default=0, show_default=True)
def main(processes: int, kills: int, launcher_kills: int, epochs: int, seed: int) -> None:
    """Kill processes at random moments; the model must end with the bytes of an uninterrupted run."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        prepare_matching(epochs)
        started = time.perf_counter()
        group = Group(Path(), "expected", processes)
        assert group.wait() == 0, group.printed()
        duration = time.perf_counter() - started
        expected = Path("expected/model/model.safetensors").read_bytes()
        done, launched, resumed, finished = 0, 0, 0, 0
        while done < kills or launched < launcher_kills:
            group = Group(Path(), "killed", processes, PET_MAX_RESTARTS="100")
            if launched < launcher_kills and chance.random() < 0.5:
                time.sleep(chance.uniform(0, duration))
                workers = group.workers()
                group.process.kill()
                group.wait()
                launched += 1
                require_gone(workers)
            else:
                while done < kills and group.process.poll() is None:
                    time.sleep(chance.uniform(0, duration))
                    if victims := group.workers():
                        kill(chance.choice(victims))
                        done += 1
                assert group.wait() == 0, group.printed()
                finished += 1
                assert Path("killed/model/model.safetensors").read_bytes() == expected, "the weights differ"
                assert history("killed") == history("expected"), "the histories differ"
            resumed += group.printed().count("resuming at")
        group = Group(Path(), "killed", processes)
        assert group.wait() == 0, group.printed()
        assert Path("killed/model/model.safetensors").read_bytes() == expected, "the weights differ"
        left = [str(path) for path in Path(".fne/training").rglob("*") if path.is_file()]
        assert not left, f"files were left: {left}"
    click.echo(
        f"{done} kills of a process and {launched} of the launcher, {resumed} times training went on, "
        f"{finished + 1} runs came to their end: weights and history identical, no checkpoint left"
    )


def require_gone(workers: list[int]) -> None:
    """Processes whose launcher was killed end with it."""
    end = time.monotonic() + LIMIT
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end, f"still running: {workers}"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
