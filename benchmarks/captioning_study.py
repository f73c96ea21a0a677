"""`python -m benchmarks.captioning_study`: captioners on real features, several systems and seeds.

    python -m benchmarks.captioning_study run /data/study runs.jsonl --system S-CNN-RNN --seeds 3
    python -m benchmarks.captioning_study show /data/study runs.jsonl

The folder is a project with `params.yaml`, `features/embeddings` and `data/captions.jsonl`, as
`dvc repro embed` leaves it. Every system is a set of changes of one recipe. `run` adds one line of JSON per
training to a file: the captions of the split `test` for several beams, and the history of the training.
What the file has is not run again, and finished trainings are kept in the scratch folder of the project, so
the same command continues after an interruption.

`show` scores these captions beside the consensus floor of the same images, and compares the pairs
of `CLAIMS`. Files of projects with other image rows can be shown together; `--rows` names the rows.
Intervals are over images. Seeds are not resampled: the difference of each seed is printed instead.
"""

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import torch

from benchmarks.drawn import draw_dataset, draw_store
from benchmarks.two_branch import arguments, run_stage, write_params
from fne.core.files import write_text
from fne.core.moved_keys import put
from fne.core.params import load_params, parse_section
from fne.evaluation.captions import nearest_training_images, reference_sentences
from fne.metrics.caption_floors import consensus_captions
from fne.metrics.caption_scores import mean_with_interval
from fne.metrics.captions import cider_d, summarize
from fne.store.catalog import in_split, read_captions
from fne.store.rows import Rows
from fne.tasks.captioning.data import read_inputs
from fne.tasks.captioning.settings import TrainCaptioner
from fne.tasks.captioning.train import reading_of, train_captioner
from fne.tasks.captioning.write import write_store
from fne.training.run import Job
from stages import catalog, embed, standardize

EMBEDDINGS, CAPTIONS = Path("features/embeddings"), Path("data/captions.jsonl")
ONE_LAYER = "conv5_3"
BEAMS = (1, 3, 5, 7)
REPORTED_BEAM = 3  # in comparisons; the paper's
NEIGHBORS = 30
# The recipe of all systems.
RECIPE: dict[str, Any] = {
    "min_count": 5,
    "units": 256,
    "word_dim": 256,
    "dropout": 0.4,
    "batch": 64,
    "patience": 100,
    "learning_rate": [0.002, 0.002, 0.0004],
    "recognizer_rate": [0.0005, 0.0002, 0.0001],
    "epochs": 2,
}
JOINT = {"learns": ["joint", "joint", "joint"]}
EMBEDDING = JOINT | {"condition": "embedding", "concept_loss": "none"}
CONCEPTS = {"condition": "concepts", "learns": ["apart", "joint", "joint"]}
SYSTEMS: dict[str, dict[str, Any]] = {
    "S-CNN-RNN": CONCEPTS | {"inject": "state"},
    "S-CNN-RNN-every": CONCEPTS | {"inject": "every"},
    "S-CNN-RNN-joint": JOINT | {"condition": "concepts", "inject": "state"},
    "NIC-deeply": JOINT
    | {
        "condition": "hidden",
        "recognizer": "hidden",
        "inject": "state",
        # A hidden layer starts from random weights: the rates of a linear recognizer are too low for it.
        "recognizer_rate": [0.002, 0.002, 0.0004],
    },
    "NIC-F-state": EMBEDDING | {"inject": "state"},
    "NIC-F": EMBEDDING | {"inject": "input"},
    "NIC-F-every": EMBEDDING | {"inject": "every"},
}


class Claim(NamedTuple):
    """A comparison of two systems, each with its image rows; the difference is that of B to A."""

    says: str
    a: tuple[str, str]
    b: tuple[str, str]


FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(help=__doc__)
def main() -> None:
    """Run and compare captioners."""


@main.command()
@click.argument("folder", type=FOLDER)
@click.argument("runs", type=FILE)
@click.option("--system", "systems", multiple=True, type=click.Choice(list(SYSTEMS)), required=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--rows", default=ONE_LAYER, show_default=True, help="The name of the image rows.")
def run(folder: Path, runs: Path, systems: tuple[str, ...], seeds: int, first_seed: int, rows: str) -> None:
    """Train captioners on the features of FOLDER, and append their captions to RUNS."""
    torch.set_num_threads(1)
    for seed in range(first_seed, first_seed + seeds):
        for system in systems:
            if (rows, system, seed) in {_key(each) for each in read_runs([runs])}:
                continue
            found = train_and_write(folder, RECIPE | SYSTEMS[system] | {"seed": seed})
            line = json.dumps({"rows": rows, "system": system, "seed": seed, **found})
            write_text(runs, (runs.read_text("utf-8") if runs.exists() else "") + line + "\n")
            print(f"{rows}, {system}, seed {seed}: {found['seconds']} s of CPU", file=sys.stderr, flush=True)


@main.command()
@click.argument("folder", type=FOLDER)
@click.argument("runs", type=FILE, nargs=-1, required=True)
def show(folder: Path, runs: tuple[Path, ...]) -> None:
    """Print the scores of RUNS, and what the comparisons of systems say, as Markdown."""
    captioned, _ = read_captions(folder / CAPTIONS)
    references, training = (reference_sentences(in_split(captioned, each)) for each in ("test", "train"))
    by_system = _by_system(read_runs(runs))
    known = {sentence for each in training.values() for sentence in each}
    print("\n".join(_scores(by_system, references, known)), end="\n\n")
    print("\n".join(_comparisons(by_system, references)))


def train_and_write(folder: Path, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Train one captioner; return its captions of the split `test` and its history."""
    params = load_params(folder / "params.yaml")
    for key, value in chosen.items():
        put(params["train_captioner"], key, value)
    settings, faults = parse_section(params, "train_captioner", TrainCaptioner)
    if settings is None:
        raise click.UsageError("; ".join(faults))
    embeddings, captions = folder / EMBEDDINGS, folder / CAPTIONS
    inputs = read_inputs(embeddings, captions, reading_of(settings))
    start = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        captioner, done = train_captioner(settings, inputs, Job(torch.device("cpu"), folder / ".fne"))
    seconds = time.process_time() - start
    captioner.eval()
    rows, (captioned, _) = Rows.open(embeddings), read_captions(captions)
    references, training = (reference_sentences(in_split(captioned, each)) for each in ("test", "train"))
    nearest = nearest_training_images(rows, list(references), list(training), NEIGHBORS)
    return {
        "seconds": round(seconds),
        "best_epoch": done.kept.epoch,
        "validation": [round(point.scores.main, 4) for point in done.points],
        "losses": [{name: round(each, 2) for name, each in point.terms.items()} for point in done.points],
        "consensus": dict(zip(references, consensus_captions(nearest, list(training.values())), strict=True)),
        "captions": {
            beam: {
                each.id: each.caption
                for each in write_store(
                    captioner,
                    inputs.words,
                    inputs.concepts.names,
                    rows,
                    list(references),
                    beam=beam,
                    max_length=20,
                )
            }
            for beam in BEAMS
        },
    }


def read_runs(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the trainings of some files; one that does not exist yet has none."""
    lines = [line for path in paths if path.exists() for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def _key(each: Mapping[str, Any]) -> tuple[str, str, int]:
    return each["rows"], each["system"], each["seed"]


def _by_system(found: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    """Return the trainings by image rows and system, then by seed."""
    result: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for each in sorted(found, key=_key):
        result.setdefault((each["rows"], each["system"]), {})[each["seed"]] = each
    return result


Systems = Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]
References = dict[str, list[str]]


def _scores(by_system: Systems, references: References, known: set[str]) -> list[str]:
    """Return a table with a row per system and beam, and one for the floor of each kind of rows."""
    lines = [
        "| rows | system | seeds | beam | CIDEr-D | of each seed | above consensus | BLEU-1 | BLEU-4 "
        "| ROUGE-L | length | distinct | in training |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rows in dict.fromkeys(rows for rows, _ in by_system):
        first = next(iter(next(own for (each, _), own in by_system.items() if each == rows).values()))
        floor = summarize(first["consensus"], references, known)
        lines.append(_row([rows, f"consensus of {NEIGHBORS} neighbors", "", "", *_figures([floor]), ""]))
        of_floor = cider_d(first["consensus"], references).per_image
        for (each, system), own in by_system.items():
            if each != rows:
                continue
            for beam in BEAMS:
                written = [seed["captions"][str(beam)] for seed in own.values()]
                scores = [summarize(captions, references, known) for captions in written]
                above = np.mean([cider_d(captions, references).per_image for captions in written], axis=0)
                difference = _signed(*mean_with_interval(above - of_floor))
                lines.append(_row([rows, system, str(len(own)), str(beam), *_figures(scores), difference]))
    return lines


def _figures(scores: Sequence[Mapping[str, float]]) -> list[str]:
    mean = {key: float(np.mean([each[key] for each in scores])) for key in scores[0]}
    of_each = " ".join(_decimal(each["CIDEr-D"]) for each in scores) if len(scores) > 1 else ""
    names = ("BLEU-1", "BLEU-4", "ROUGE-L", "length_ratio")
    fractions = (f"{mean[name]:.0%}" for name in ("distinct_captions", "found_in_training"))
    return [_decimal(mean["CIDEr-D"]), of_each, *(_decimal(mean[name]) for name in names), *fractions]


def _row(cells: Sequence[str]) -> str:
    """Return a row whose last cell, the difference to the floor, is shown after the scores of each seed."""
    *others, difference = cells
    return f"| {' | '.join([*others[:6], difference, *others[6:]])} |"


def _comparisons(by_system: Systems, references: References) -> list[str]:
    lines = [
        f"| comparison, beam {REPORTED_BEAM} | A | B | B - A (95 % over images) | of each seed |",
        "|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        if claim.a not in by_system or claim.b not in by_system:
            continue
        seeds = sorted(set(by_system[claim.a]) & set(by_system[claim.b]))
        a, b = (
            np.stack([_per_image(by_system[side][seed], references) for seed in seeds])
            for side in (claim.a, claim.b)
        )
        of_each = " ".join(_signed(each) for each in (b - a).mean(axis=1))
        interval = _signed(*mean_with_interval((b - a).mean(axis=0)))
        names = [f"{system} {_decimal(side.mean())}" for (_, system), side in ((claim.a, a), (claim.b, b))]
        lines.append(f"| {claim.says} | {' | '.join(names)} | {interval} | {of_each} |")
    return lines


def _per_image(run: Mapping[str, Any], references: References) -> np.ndarray:
    return cider_d(run["captions"][str(REPORTED_BEAM)], references).per_image


def _decimal(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _signed(value: float, low: float | None = None, high: float | None = None) -> str:
    """Format a difference, and its interval if there is one.

    Example:
        >>> _signed(0.0371, -0.009, 0.08)
        '+.037 (-.009 to +.080)'
    """
    text = f"{value:+.3f}".replace("0.", ".", 1)
    return text if low is None or high is None else f"{text} ({_signed(low)} to {_signed(high)})"


CLAIMS = (
    Claim("concepts against the image row", (ONE_LAYER, "NIC-F-state"), (ONE_LAYER, "S-CNN-RNN")),
    Claim("concepts against a hidden layer", (ONE_LAYER, "NIC-deeply"), (ONE_LAYER, "S-CNN-RNN")),
    Claim("a supervised hidden layer against the row", (ONE_LAYER, "NIC-F-state"), (ONE_LAYER, "NIC-deeply")),
    Claim("true concepts first", (ONE_LAYER, "S-CNN-RNN-joint"), (ONE_LAYER, "S-CNN-RNN")),
    Claim("as first state against as first input", (ONE_LAYER, "NIC-F"), (ONE_LAYER, "NIC-F-state")),
    Claim("concepts once, the row at every step", (ONE_LAYER, "NIC-F-every"), (ONE_LAYER, "S-CNN-RNN")),
    Claim("at every step against as first input", (ONE_LAYER, "NIC-F"), (ONE_LAYER, "NIC-F-every")),
    Claim("concepts at every step", (ONE_LAYER, "S-CNN-RNN"), (ONE_LAYER, "S-CNN-RNN-every")),
    Claim(
        "both at every step: concepts, the row", (ONE_LAYER, "NIC-F-every"), (ONE_LAYER, "S-CNN-RNN-every")
    ),
    Claim("full-network embedding against one layer", (ONE_LAYER, "S-CNN-RNN"), ("FNE", "S-CNN-RNN")),
    Claim("all layers by layer against one layer", (ONE_LAYER, "S-CNN-RNN"), ("layers", "S-CNN-RNN")),
)


def tiny(folder: Path) -> None:
    """Run with little data."""
    dataset = draw_dataset(folder, images=40)
    store = draw_store(dataset)
    own = {"catalog.root": str(dataset), "catalog.images": "none", "embed.source": str(store)}
    with contextlib.chdir(folder):
        write_params(own | {"embed.kind": "layer", "embed.layer": ONE_LAYER})
        for stage in (catalog, standardize, embed):
            run_stage(stage, *arguments(stage.__name__.rpartition(".")[2]))
    runs = str(folder / "runs.jsonl")
    main.main(["run", str(folder), runs, "--system", "NIC-F"], standalone_mode=False)
    main.main(["show", str(folder), runs], standalone_mode=False)


if __name__ == "__main__":
    main()
