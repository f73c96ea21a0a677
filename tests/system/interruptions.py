"""Pushes killed at random moments, and what the check says afterwards.

    python -m tests.system.interruptions --kind ssh --rounds 20

Each round starts with an empty remote and kills `dvc push` while it sends. Whether the
remote is complete is then looked up in the files themselves, and compared with the
answer of `fne verify --remote`. A second push shows what DVC believes; a repair must make
everything whole in the end.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import click

from fne.commands.remote import verify_remote
from tests.projects import commit, dvc, git
from tests.system.remotes import NAME, REMOTES, Remote

SMALL, LARGE = 60, 4  # files; of a few bytes, and of some megabytes


@dataclass
class Tally:
    """What happened in all rounds."""

    rounds: int = 0
    kills: int = 0  # pushes that were still running when the signal came
    incomplete: int = 0  # remotes that lacked something after the kill
    false_clean: int = 0
    false_alarm: int = 0
    dvc_in_sync: int = 0  # second pushes that succeeded and left the remote incomplete
    repaired: int = 0
    checked: int = 0  # objects
    seconds: float = 0.0  # of checking

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.kills} kills, {self.incomplete} of them left an incomplete remote; "
            f"false clean {self.false_clean}, false alarm {self.false_alarm}; "
            f"{self.dvc_in_sync} times `dvc push` then succeeded without mending it; {self.repaired} repaired; "
            f"{self.checked} objects checked, {self.checked / max(self.seconds, 1e-9):,.0f} a second"
        )


def objects_project(folder: Path, seed: int = 0) -> Path:
    """Make a project with many small files and some large ones, in a folder and alone."""
    chance = random.Random(seed)
    (folder / "rows").mkdir(parents=True)
    for number in range(SMALL):
        (folder / f"rows/{number}.bin").write_bytes(chance.randbytes(chance.randrange(1, 2000)))
    for number in range(LARGE):
        (folder / f"rows/large-{number}.bin").write_bytes(chance.randbytes(4_000_000))
    (folder / "model.bin").write_bytes(chance.randbytes(6_000_000))
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@example.org")
    dvc(folder, "init", "--quiet")
    dvc(folder, "add", "--quiet", "rows", "model.bin")
    commit(folder)
    return folder


def interrupt(project: Path, server: Remote, rounds: int, chance: random.Random, second_push: bool) -> Tally:
    """Kill that many pushes to fresh remotes on one server; a push that was faster does not count."""
    tally = Tally()
    with chdir(project):
        for number in range(5 * rounds):
            if tally.kills == rounds:
                break
            remote = server.below(str(number))
            remote.attach(project)
            tally.rounds += 1
            tally.kills += _push_and_kill(project, remote, chance)
            complete = is_complete(project, remote)
            tally.incomplete += not complete
            _judge(tally, complete)
            if second_push:
                pushed = subprocess.run(
                    [sys.executable, "-m", "dvc", "push"], capture_output=True, check=False
                )
                complete = is_complete(project, remote)
                tally.dvc_in_sync += pushed.returncode == 0 and not complete
                _judge(tally, complete)
            assert verify_remote(NAME, repair=True).faults == []
            assert is_complete(project, remote), "a repair that says it is done has left something out"
            tally.repaired += not complete
            shutil.rmtree(remote.folder, ignore_errors=True)
    return tally


def is_complete(project: Path, remote: Remote) -> bool:
    """Tell from the files themselves whether a remote has all objects of the project's cache."""
    cache = project / ".dvc/cache/files/md5"
    there = remote.folder / "files/md5"
    for path in cache.glob("*/*"):
        copy = there / path.relative_to(cache)
        if not copy.is_file() or copy.read_bytes() != path.read_bytes():
            return False
    return True


def _push_and_kill(project: Path, remote: Remote, chance: random.Random) -> bool:
    """Start a push, wait for the first object, kill it a random moment later; tell whether it still ran."""
    push = subprocess.Popen(
        [sys.executable, "-m", "dvc", "push"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while push.poll() is None and not any(remote.folder.glob("files/md5/*/*")):
        time.sleep(0.001)
    time.sleep(chance.choice([0.01, 0.1, 0.5, 1.5]) * chance.random())
    if push.poll() is None:
        os.killpg(push.pid, signal.SIGKILL)
    return push.wait() == -signal.SIGKILL


def _judge(tally: Tally, complete: bool) -> None:
    start = time.perf_counter()
    answer = verify_remote(NAME)
    tally.seconds += time.perf_counter() - start
    tally.checked += SMALL + LARGE + 2
    tally.false_clean += not answer.faults and not complete
    tally.false_alarm += bool(answer.faults) and complete


@click.command()
@click.option("--kind", type=click.Choice(list(REMOTES)), default="folder", show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(kind: str, rounds: int, seed: int) -> None:
    """Kill pushes and judge the check."""
    with tempfile.TemporaryDirectory() as name:
        project = objects_project(Path(name, "project"), seed)
        (place := Path(name, "remote")).mkdir()
        with REMOTES[kind](place) as server:
            tally = interrupt(project, server, rounds, random.Random(seed), second_push=True)
    click.echo(f"{kind}: {tally}")
    assert tally.false_clean == 0


if __name__ == "__main__":
    main()
