"""`fne table --dry` and `--queue`: the experiments that a table lacks, and what they would cost."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from fne.commands.estimate import Pace, Work, hours, pace
from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.params import load_params, load_section
from fne.core.runtime import load_runtime
from fne.datasets.world import Render
from fne.matching.settings import Train
from fne.paper.data import load
from fne.paper.plan import Planned, missing, names_other_data, planned
from fne.paper.presets import DEMO
from fne.paper.project import opened

FEATURES = {"fne": 12416, "layer": 4096}
DEMO_WORDS = 100
# What the time of a step depends on; seeds, rates and margins are not among it.
TELLING = ("image_head", "text_encoder", "similarity", "embed_dim", "word_dim", "batch", "loss", "optimizer")


def propose(
    number: int,
    dataset: str | None,
    following: str,
    seeds: int,
    only: Sequence[str],
    params: Path,
    strict: bool,
) -> list[Planned]:
    """Print the experiments that a table lacks, with the data and the weights of the parameter file.

    Those that wait in DVC's queue are not lacking. A parameter file that names another data set
    is worth a warning or, if `strict`, refused.
    """
    chosen = dataset or load(f"table{number}")["dataset"]
    settings = load_params(params)
    fault = names_other_data(chosen, settings)
    if fault and strict:
        raise InputError(fault)
    if fault:
        click.echo(f"Warning: {fault}", err=True)
    wanted = planned(number, chosen, following, seeds, only)
    with opened(Path()) as project:
        known = [*(run.settings for run in project.runs()), *project.queued()]
    lacking = missing(wanted, known, settings)
    click.echo(listed(lacking, estimates(lacking, params)) if lacking else "nothing is missing")
    return lacking


def estimates(experiments: Sequence[Planned], params: Path) -> list[float]:
    """Return how many hours each experiment would train on this machine."""
    device = prepare_device(load_runtime(params))
    paces: dict[str, Pace] = {}
    found = []
    for each in tqdm(experiments, desc="timing some steps", unit="experiment", disable=None, leave=False):
        train, work = _train_section(each, params), _work(each, params)
        key = json.dumps([work.features, work.words, *(train[name] for name in TELLING)])
        if key not in paces:
            paces[key] = pace(train, work, device)
        found.append(hours(train, work, paces[key]))
    return found


def listed(experiments: Sequence[Planned], cost: Sequence[float]) -> str:
    """Return the commands, the hours each would take, and their sum."""
    lines = [
        f"# {each.preset.name}, seed {each.seed}: about {_time(time)}\n{each.typed()}"
        for each, time in zip(experiments, cost, strict=True)
    ]
    total = (
        f"# {len(experiments)} experiments, about {_time(sum(cost))} of training here, one after the other"
    )
    return "\n".join([*lines, total])


def enqueue(experiments: Sequence[Planned]) -> None:
    """Put experiments into DVC's queue.

    Raises:
        InputError: with what DVC said, if it refused one.
    """
    for each in tqdm(experiments, desc="queueing", unit="experiment", disable=None, leave=False):
        words = [sys.executable, "-m", *each.command()]
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise InputError(
                f"{each.preset.name}, seed {each.seed}: {_complaint(done.stderr or done.stdout)}"
            )
    click.echo(f"{len(experiments)} experiments queued; run them with `dvc queue start`")


def _complaint(printed: str) -> str:
    """Return the line in which DVC says what is wrong, without the advice around it."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return told[0] if told else " ".join(lines)


def _train_section(each: Planned, params: Path) -> dict[str, Any]:
    train = load_section(params, "train", Train).model_dump()
    chosen = {key.removeprefix("train."): value for key, value in each.preset.overrides.items()}
    return train | {key: value for key, value in chosen.items() if key in train} | {"seed": each.seed}


def _work(each: Planned, params: Path) -> Work:
    features = FEATURES[each.preset.overrides["embed.kind"]]
    if each.preset.dataset == DEMO:
        render = load_section(params, "render", Render)
        val, test = (int(render.images * share) for share in (render.val_share, render.test_share))
        return Work(features, DEMO_WORDS, render.images - val - test, val)
    facts = load("datasets")[each.preset.dataset]
    val = facts["images"]["val"]
    smallest = min(val) if isinstance(val, list) else val
    return Work(features, facts["words"], facts["images"]["train"], smallest)


def _time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
