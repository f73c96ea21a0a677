"""Fault injection for the extraction on Ray: `python -m tests.faults.ray --help`.

The extraction runs repeatedly, and its workers or its driver are killed at random moments. Each
time the store must have the bytes of an uninterrupted run in one process.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fne.core.files import is_alive
from tests.faults.extraction import extraction_project
from tests.faults.ray_workers import COMPUTING, LIMIT, PROCESSES, SCRATCH, finished
from tests.support.imports import ROOT
from tests.support.projects import change_params

STORE = Path("store")
TIMEOUT_SECONDS = 120


@click.group()
def main() -> None:
    """Kill workers and drivers of an extraction on Ray and check that nothing is lost."""


@main.command()
@click.option("--workers", default=20, show_default=True, help="Runs in which workers are killed.")
@click.option("--drivers", default=5, show_default=True, help="Runs in which the driver is killed.")
@click.option("--images", default=60, show_default=True)
@click.option("--seed", default=0, show_default=True)
def kills(workers: int, drivers: int, images: int, seed: int) -> None:
    """Kill workers on a cluster of two nodes, and drivers that started their own cluster (kill -9)."""
    rng = random.Random(seed)
    with extraction_project(images) as folder:
        os.chdir(folder)
        extract_locally(folder)
        expected = contents(folder / "local")
        killed = 0
        with two_nodes() as (address, _):
            for number in range(workers):
                killed += _kill_workers(folder, rng, images, address)
                assert contents(folder / STORE) == expected, f"run {number}: the store differs"
                click.echo(f"run {number + 1}: {killed} workers killed so far, store identical", err=True)
        for number in range(drivers):
            _kill_driver(folder, rng, images)
            assert contents(folder / STORE) == expected, f"driver {number}: the store differs"
            click.echo(f"driver {number + 1} killed, store identical after the next run", err=True)
    click.echo(
        f"{workers} runs with {killed} killed workers and {drivers} killed drivers: nothing finished was lost, "
        "no worker was left, every store is identical to that of one process"
    )


def start_driver(
    folder: Path, worker: str, address: str | None, limit: int | None = None
) -> subprocess.Popen[str]:
    """Start the extraction on Ray, on the cluster at an address or on a new one.

    With a limit, slow workers wait when so many rows are finished: what happens then happens in the middle of
    the work, however busy the machine is. `lift_limit` lets them continue.
    """
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PYTHONPATH": str(ROOT), "FNE_ENGINE": "ray"}
    if address:
        environment["RAY_ADDRESS"] = address
    shutil.rmtree(folder / PROCESSES, ignore_errors=True)
    if limit is not None:
        (folder / LIMIT).write_text(str(limit))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.ray_driver", worker, str(STORE)],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lift_limit(folder: Path) -> None:
    """Let slow workers continue."""
    (folder / LIMIT).unlink()


def extract_locally(folder: Path, store: str = "local") -> None:
    """Run the extraction in one process, with a separate scratch folder."""
    shutil.copy(folder / "params.yaml", folder / "local.yaml")
    own = {"embed": {"source": store}, "runtime": {"scratch": "scratch-local"}}
    change_params(folder, own, "local.yaml")
    command = [sys.executable, "-m", "stages.extract", "data/images.jsonl", store, "--params", "local.yaml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FNE_ENGINE": "local"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def contents(store: Path) -> dict[str, bytes]:
    """Return the files of a store."""
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


def processes(folder: Path) -> list[int]:
    """Return the running worker processes, without zombies."""
    if not (folder / PROCESSES).exists():
        return []
    return [each for each in map(int, os.listdir(folder / PROCESSES)) if runs(each)]


def computing(folder: Path) -> list[int]:
    """Return those that have got a unit."""
    return [each for each in processes(folder) if (folder / PROCESSES / str(each)).read_text() == COMPUTING]


def runs(process: int) -> bool:
    """Return whether a process runs; a zombie process does not."""
    try:
        return is_alive(process) and bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except FileNotFoundError:  # it has just ended
        return False


def wait_for(what: str, condition) -> None:
    """Wait until a condition holds, or fail after a timeout."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"timeout after {TIMEOUT_SECONDS} s: {what}"
        time.sleep(0.02)


def kill_one(folder: Path, rng: random.Random) -> int:
    """Kill one of the workers, as soon as one has a unit, and return its process id."""
    wait_for("a worker computes", lambda: computing(folder))
    process = rng.choice(computing(folder))
    os.kill(process, signal.SIGKILL)
    return process


@contextmanager
def two_nodes() -> Iterator[tuple[str, object]]:
    """Start a Ray cluster of two nodes with one CPU each on this machine; yield its address and itself."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(ROOT)
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        cluster.add_node(**small)
        cluster.wait_for_nodes()
        yield cluster.address, cluster
    finally:
        cluster.shutdown()


def _kill_workers(folder: Path, rng: random.Random, images: int, address: str) -> int:
    """Run with an empty scratch folder and kill up to three workers at random moments; return how many."""
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    driver = start_driver(folder, "slow", address)
    killed = 0
    for moment in sorted(rng.randrange(images * 3 // 4) for _ in range(rng.randrange(1, 4))):
        wait_for(
            "rows are finished", lambda moment=moment: finished(folder) >= moment or driver.poll() is not None
        )
        if driver.poll() is None:
            killed += bool(kill_one(folder, rng))
    printed, errors = driver.communicate(timeout=600)
    assert driver.returncode == 0, printed + errors
    return killed


def _kill_driver(folder: Path, rng: random.Random, images: int) -> None:
    """Kill the driver at a random moment, check that its workers end and its rows are kept, and run again."""
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    driver = start_driver(folder, "slow", None)
    moment = rng.randrange(1, images * 3 // 4)
    wait_for("rows are finished", lambda: finished(folder) >= moment)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    kept = finished(folder)
    wait_for("workers end", lambda: not processes(folder))
    again = start_driver(folder, "slow", None)
    printed, errors = again.communicate(timeout=600)
    assert again.returncode == 0, printed + errors
    assert f"{kept} done, {images - kept} to do" in printed, printed


if __name__ == "__main__":
    main()
