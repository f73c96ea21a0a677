"""Kill pushes at random moments, and compare the check of the remote with the files.

    python -m tests.faults.pushes --kind ssh --rounds 20

Each round starts with an empty remote and kills `dvc push` while it uploads. Whether the
remote is complete is determined from the files, and compared with the report of `fne verify
--remote`. A second push shows whether DVC notices what is missing. A repair must then complete
the remote.
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

from fne.sharing.remote_verdict import verify_remote
from tests.support.projects import commit, dvc, git
from tests.support.servers import NAME, REMOTES, Remote

SMALL, LARGE = 60, 4  # files; of a few bytes, and of some megabytes


@dataclass
class Tally:
    """The counts of all rounds."""

    rounds: int = 0
    kills: int = 0  # pushes that were still running when the signal came
    incomplete: int = 0  # remotes with missing objects after the kill
    false_clean: int = 0
    false_alarm: int = 0
    dvc_in_sync: int = 0  # second pushes that succeeded and left the remote incomplete
    repaired: int = 0
    checked: int = 0  # objects
    seconds: float = 0.0  # the time of checking

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.kills} kills, {self.incomplete} of them left an incomplete remote; "
            f"false clean {self.false_clean}, false alarm {self.false_alarm}; "
            f"{self.dvc_in_sync} times `dvc push` then succeeded without completing it; {self.repaired} repaired; "
            f"{self.checked} objects checked, {self.checked / max(self.seconds, 1e-9):,.0f} per second"
        )


def objects_project(folder: Path, seed: int = 0) -> Path:
    """Make a project with many small files and some large ones, in a folder and as single files."""
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
    """Kill `rounds` pushes to empty remotes on one server; a push that finished before does not count."""
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
            _compare(tally, complete)
            if second_push:
                pushed = subprocess.run(
                    [sys.executable, "-m", "dvc", "push"], capture_output=True, check=False
                )
                complete = is_complete(project, remote)
                tally.dvc_in_sync += pushed.returncode == 0 and not complete
                _compare(tally, complete)
            assert verify_remote(NAME, repair=True).faults == []
            assert is_complete(project, remote), "the repair reported success, but the remote is incomplete"
            tally.repaired += not complete
            shutil.rmtree(remote.folder, ignore_errors=True)
    return tally


def is_complete(project: Path, remote: Remote) -> bool:
    """Return whether a remote has all objects of the project's cache, by comparing the files."""
    cache = project / ".dvc/cache/files/md5"
    stored = remote.folder / "files/md5"
    for path in cache.glob("*/*"):
        copy = stored / path.relative_to(cache)
        if not copy.is_file() or copy.read_bytes() != path.read_bytes():
            return False
    return True


def _push_and_kill(project: Path, remote: Remote, chance: random.Random) -> bool:
    """Start a push, wait for the first object, and kill it later; return whether it was still running."""
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


def _compare(tally: Tally, complete: bool) -> None:
    start = time.perf_counter()
    report = verify_remote(NAME)
    tally.seconds += time.perf_counter() - start
    tally.checked += SMALL + LARGE + 2
    tally.false_clean += not report.faults and not complete
    tally.false_alarm += bool(report.faults) and complete


@click.command()
@click.option("--kind", type=click.Choice(list(REMOTES)), default="folder", show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(kind: str, rounds: int, seed: int) -> None:
    """Kill pushes and compare the check with the files."""
    with tempfile.TemporaryDirectory() as name:
        project = objects_project(Path(name, "project"), seed)
        (place := Path(name, "remote")).mkdir()
        with REMOTES[kind](place) as server:
            tally = interrupt(project, server, rounds, random.Random(seed), second_push=True)
    click.echo(f"{kind}: {tally}")
    assert tally.false_clean == 0


if __name__ == "__main__":
    main()
