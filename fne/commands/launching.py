"""`fne table --queue` and `--run`: experiments handed to DVC, to be run later or now."""

import subprocess
import sys
import time
from collections.abc import Sequence

import click
from tqdm import tqdm

from fne.commands.estimate import Estimate, in_words
from fne.core.errors import InputError
from fne.paper.plan import Planned

ERROR_STREAM = 2


def enqueue(experiments: Sequence[Planned]) -> None:
    """Put experiments into DVC's queue.

    Raises:
        InputError: with what DVC said, if it refused one.
    """
    for each in tqdm(experiments, desc="queueing", unit="experiment", disable=None, leave=False):
        done = subprocess.run(_words(each, "--queue"), capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise InputError(f"{each.title}: {_complaint(done.stderr or done.stdout)}")
    click.echo(f"{len(experiments)} experiments queued; run them with `dvc queue start`")


def run_all(experiments: Sequence[Planned], cost: Sequence[Estimate]) -> None:
    """Run experiments one after the other, in temporary copies of the project.

    What DVC and the stages print goes to the error stream, with a line of ours before and
    after each. Each is recorded when it ends, so that those that have ended are not run again.

    Raises:
        InputError: if one failed.
    """
    start = time.monotonic()
    for number, each in enumerate(experiments, start=1):
        title = f"{number} of {len(experiments)}: {each.title}"
        click.echo(f"{title}: running", err=True)
        code = _exit_code(_words(each, "--temp"))
        if code:
            raise InputError(
                f"{each.title}: `dvc exp run` ended with code {code}, for the reason above; the same command "
                "goes on from here"
            )
        passed = (time.monotonic() - start) / 3600
        ahead, behind = (sum(known.hours for known in part) for part in (cost[number:], cost[:number]))
        left = f"; about {in_words(passed * ahead / behind)} left" if number < len(experiments) else ""
        click.echo(f"{title}: done{left}", err=True)


def _words(experiment: Planned, how: str) -> list[str]:
    return [sys.executable, "-m", *experiment.command(how)]


def _exit_code(words: Sequence[str]) -> int:
    """Run a command whose output goes to the error stream, and let it tidy up when it is interrupted."""
    with subprocess.Popen(words, stdout=ERROR_STREAM) as process:  # noqa: S603
        try:
            return process.wait()
        except KeyboardInterrupt:  # which the command has got as well
            process.wait()
            raise


def _complaint(printed: str) -> str:
    """Return the line in which DVC says what is wrong, without the advice around it."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return told[0] if told else " ".join(lines)
