"""`fne table --dry`: the experiments that a table lacks, and what they would cost."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from fne.commands.estimate import Estimate, Pace, Work, estimate, in_words, pace
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
) -> tuple[list[Planned], list[Estimate]]:
    """Return the experiments that a table lacks with the parameter file's data and weights, and their cost.

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
        finished, waiting = [run.settings for run in project.runs()], project.queued()
    unfinished = missing(wanted, finished, settings)
    lacking = missing(unfinished, waiting, settings)
    if len(lacking) < len(unfinished):
        there = len(unfinished) - len(lacking)
        click.echo(f"in DVC's queue: {there} more; `dvc queue start` runs them", err=True)
    return lacking, estimates(lacking, params)


def estimates(experiments: Sequence[Planned], params: Path) -> list[Estimate]:
    """Return how long each experiment would train on this machine."""
    device = prepare_device(load_runtime(params))
    paces: dict[str, Pace] = {}
    found = []
    for each in tqdm(experiments, desc="timing an epoch", unit="experiment", disable=None, leave=False):
        train, work = _train_section(each, params), _work(each, params)
        key = json.dumps([work.features, work.words, *(train[name] for name in TELLING)])
        if key not in paces:
            paces[key] = pace(train, work, device)
        found.append(estimate(train, work, paces[key]))
    return found


def listed(experiments: Sequence[Planned], cost: Sequence[Estimate], commands: bool = True) -> str:
    """Return how long each experiment would take and on what that is based, its command, and the sum."""
    if not experiments:
        return "nothing is missing"
    lines = []
    for each, time in zip(experiments, cost, strict=True):
        lines.append(f"# {each.title}: about {in_words(time.hours)}, from {time.basis}")
        lines += [each.typed()] if commands else []
    total = in_words(sum(time.hours for time in cost))
    lines.append(
        f"# {len(experiments)} experiments, about {total} of training here, one after the other; "
        "timed on random data of the same size"
    )
    return "\n".join(lines)


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
