"""A study that is killed again and again: `python -m tests.faults.studies --help`.

The tests run a small version.
"""

import os
import random
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import click
import torch

from fne.cli import main as fne
from fne.experiments import study_run
from fne.experiments.study_file import WORK
from tests.support.kills import run_forked
from tests.support.studies import STUDY, write_study

PRELOADED = (torch, study_run)
# Closed forms, and training runs by steps with two draws of the learning rate.
TRAINED = {
    "embed.kind": "zscore",
    "train.method": "steps",
    "train.start": "random",
    "train.text_encoder": "bow",
}
TRAINED |= {"train.embed_dim": 8, "train.epochs": 3, "train.patience": 3, "train.batch": 8}


@click.command()
@click.option("--kills", default=50, show_default=True, help="How often to send SIGKILL.")
@click.option("--seed", default=0, show_default=True)
def main(kills: int, seed: int) -> None:
    """Kill `fne study run` at random moments; its results must be the bytes of an uninterrupted run."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        prepare()
        started = time.perf_counter()
        assert study("uninterrupted") == 0, Path("printed").read_text()
        duration = time.perf_counter() - started
        expected = results("uninterrupted")
        killed, known = 0, 0
        while killed < kills:
            if study("interrupted", after=chance.uniform(0, 0.3 * duration)) == 0:
                check(expected)
                known = len(expected)
                continue
            killed += 1
            found = len(results("interrupted"))
            assert found >= known, "a result was lost"
            known = found
            if known == len(expected):
                known -= forget(chance)
        assert study("interrupted") == 0, Path("printed").read_text()
        check(expected)
        assert not Path("interrupted", WORK).exists(), "the work folder was left"
    click.echo(f"{killed} kills: {len(expected)} results, the bytes of an uninterrupted run")


def prepare() -> None:
    """Write a study of closed forms and of training runs by steps."""
    trained = {"set": TRAINED, "factors": {"layers": {"all": {}, "last": {"embed.layers": "last:1"}}}}
    tuning = {"key": "train.learning_rate", "draws": 2, "low": 0.001, "high": 0.01}
    write_study(Path(), folds=2, grids={**STUDY["grids"], "trained": trained}, tuning=tuning)


def study(folder: str, after: float | None = None) -> int:
    """Run the study in a forked child, and kill it after some seconds; return its exit code, or minus a signal."""
    arguments = ["study", "run", "studies/small.yaml", "--to", folder]
    kill = None if after is None else signal.SIGKILL
    ended_with = run_forked(partial(fne.main, arguments), kill, after or 0.0)
    assert ended_with in (0, -signal.SIGKILL), Path("printed").read_text()
    return ended_with


def results(folder: str) -> dict[str, bytes]:
    """Return the finished files of a study."""
    found = sorted(Path(folder, "results").rglob("fold-*.h5"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def check(expected: dict[str, bytes]) -> None:
    """Compare the interrupted study with the uninterrupted one."""
    assert results("interrupted") == expected, "the results differ"


def forget(chance: random.Random) -> int:
    """Remove most results, so that the next run has work; return how many."""
    files = sorted(Path("interrupted/results").rglob("fold-*.h5"))
    removed = chance.sample(files, len(files) * 2 // 3)
    for path in removed:
        path.unlink()
    return len(removed)


if __name__ == "__main__":
    main()
