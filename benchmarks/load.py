"""`fne serve` under load: p50 and p99 of the response times, from clients in another process on loopback.

`python -m benchmarks.load` writes a synthetic project of Flickr8k's size (8,000 images, 40,000 captions,
1,024 dimensions, 12,416 ternary features), starts the server, and asks for `--seconds` from `--clients`
connections, each of which waits for its answer before it asks again. It compares nothing, so `make bench`
does not run it.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import numpy as np

from benchmarks.search import DIM, FEATURES, IMAGES, write_project

ALONE = 4.0  # seconds
REQUESTS: dict[str, Callable[[int], str]] = {
    "images for a sentence": lambda number: (
        f"/api/search?{urlencode({'text': f'word{number} word22 word{number + 9}'})}"
    ),
    "sentences for an image": lambda number: f"/api/sentences?image=image-{number}",
    "look-alikes": lambda number: f"/api/similar?image=image-{number}",
    "details": lambda number: f"/api/image?image=image-{number}",
}


@click.command()
@click.option("--seconds", default=60, show_default=True)
@click.option("--clients", default=4, show_default=True)
def main(seconds: int, clients: int) -> None:
    """Print the response times of each kind of request; exit with 1 if one failed."""
    measure(seconds, clients)


def measure(
    seconds: float,
    clients: int,
    alone: float = ALONE,
    images: int = IMAGES,
    features: int = FEATURES,
    dim: int = DIM,
) -> None:
    """Start the server on a project of a given size and ask; exit with 1 if an answer is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, images, features, dim)
        command = [sys.executable, "-u", "-m", "fne", "serve", "--port", "0"]
        started = time.perf_counter()
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            try:
                assert server.stdout
                found = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
                assert found
                click.echo(f"the server started in {time.perf_counter() - started:.1f} s")
                port, failed = int(found[1]), 0
                while _status(port)["network"] == "loading":
                    time.sleep(1)
                # One client alone and one kind at a time: the time of an answer without waiting for others.
                for kind in REQUESTS:
                    before = _processor_seconds(server.pid)
                    taken, problems = _ask(port, alone, 1, [kind], images)
                    used = (_processor_seconds(server.pid) - before) / len(taken[kind])
                    failed += _report(taken, problems, 1)
                    click.echo(f"  {1000 * used:.1f} ms of processor time per answer")
                failed += _report(*_ask(port, seconds, clients, list(REQUESTS), images), clients)
            finally:
                server.terminate()
    if failed:
        sys.exit(1)


def _ask(
    port: int, seconds: float, clients: int, kinds: list[str], images: int
) -> tuple[dict[str, list[float]], list[str]]:
    """Return the seconds of each answer by kind, and what failed."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    problems: list[str] = []
    end = time.monotonic() + seconds

    def work(client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        number = client * 1000
        while time.monotonic() < end:
            number += 1
            kind = kinds[number % len(kinds)]
            start = time.perf_counter()
            connection.request("GET", REQUESTS[kind](number % images))
            response = connection.getresponse()
            content = response.read()
            taken[kind].append(time.perf_counter() - start)
            if response.status != 200 or "version" not in json.loads(content):
                problems.append(f"{kind}: {response.status} {content[:200]!r}")
        connection.close()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, problems


def _status(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/status")
    status: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return status


def _processor_seconds(process: int) -> float:
    """Return the processor time of a process since it started."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(taken: dict[str, list[float]], problems: list[str], clients: int) -> int:
    click.echo(f"{clients} client{'s' * (clients > 1)}, {len(problems)} errors")
    for kind, seconds in taken.items():
        low, high = 1000 * np.percentile(seconds, [50, 99])
        click.echo(f"  {kind:<24} {len(seconds):>6,} answers  p50 {low:>6.1f} ms  p99 {high:>6.1f} ms")
    for problem in problems[:5]:
        click.echo(f"  {problem}")
    return len(problems)


def tiny(folder: Path) -> None:
    """Run with little data."""
    measure(seconds=0.2, clients=2, alone=0.1, images=20, features=64, dim=16)


if __name__ == "__main__":
    main()
