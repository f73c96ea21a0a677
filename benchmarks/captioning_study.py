"""`python -m benchmarks.captioning_study`: captioners on real features, several variants and seeds.

The folder is a project with `params.yaml`, `features/embeddings` and `data/captions.jsonl`, as
`dvc repro embed` leaves it. Every variant is a set of changes of the recipe. One line of JSON per run goes to
standard output: the scores of the split `test` for several beams, the difference to the consensus floor of
the same images, and the CPU seconds of the training. Finished trainings are kept in the scratch folder, so an
interrupted study goes on.

    python -m benchmarks.captioning_study /data/study --variant NIC-F-state --variant S-CNN-RNN --seeds 3
"""

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch

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

# The recipe of all variants.
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
VARIANTS: dict[str, dict[str, Any]] = {
    "NIC-F-state": EMBEDDING | {"inject": "state"},
    "NIC-F": EMBEDDING | {"inject": "input"},
    "NIC-F-every": EMBEDDING | {"inject": "every"},
    "S-CNN-RNN": {"condition": "concepts", "inject": "state", "learns": ["apart", "joint", "joint"]},
    "S-CNN-RNN-joint": JOINT | {"condition": "concepts", "inject": "state"},
    "NIC-deeply": JOINT
    | {
        "condition": "hidden",
        "recognizer": "hidden",
        "inject": "state",
        # A hidden layer starts from random weights: the rates of a linear recognizer are too low for it.
        "recognizer_rate": [0.002, 0.002, 0.0004],
    },
}
BEAMS = (1, 3, 5, 7)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--variant", "variants", multiple=True, type=click.Choice(list(VARIANTS)), required=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change the recipe; repeatable.")
def main(
    folder: Path, variants: tuple[str, ...], seeds: int, first_seed: int, changes: tuple[str, ...]
) -> None:
    """Train captioners on the features of FOLDER and print their scores."""
    torch.set_num_threads(1)
    own = {key: json.loads(value) for key, value in (each.split("=", 1) for each in changes)}
    for seed in range(first_seed, first_seed + seeds):
        for variant in variants:
            found = study(folder, RECIPE | VARIANTS[variant] | own | {"seed": seed})
            print(json.dumps({"variant": variant, "seed": seed, "set": own, **found}), flush=True)


def study(folder: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """Train one captioner and score it."""
    params = load_params(folder / "params.yaml")
    for key, value in chosen.items():
        put(params["train_captioner"], key, value)
    settings, faults = parse_section(params, "train_captioner", TrainCaptioner)
    if settings is None:
        raise click.UsageError("; ".join(faults))
    embeddings, captions = folder / "features/embeddings", folder / "data/captions.jsonl"
    inputs = read_inputs(embeddings, captions, reading_of(settings))
    start = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        captioner, done = train_captioner(settings, inputs, Job(torch.device("cpu"), folder / ".fne"))
    seconds = time.process_time() - start
    captioner.eval()
    rows, (captioned, _) = Rows.open(embeddings), read_captions(captions)
    references = reference_sentences(in_split(captioned, "test"))
    training = reference_sentences(in_split(captioned, "train"))
    nearest = nearest_training_images(rows, list(references), list(training), 30)
    floor = dict(zip(references, consensus_captions(nearest, list(training.values())), strict=True))
    of_floor = cider_d(floor, references).per_image
    known = {sentence for each in training.values() for sentence in each}
    scores: dict[int, Any] = {}
    for beam in BEAMS:
        written = write_store(
            captioner, inputs.words, inputs.concepts.names, rows, list(references), beam=beam, max_length=20
        )
        candidates = {each.id: each.caption for each in written}
        found = summarize(candidates, references, known)
        scores[beam] = {key: round(value, 4) for key, value in found.items()}
        difference = mean_with_interval(cider_d(candidates, references).per_image - of_floor)
        scores[beam]["above_floor"] = [round(each, 4) for each in difference]
    return {
        "seconds": round(seconds),
        "best_epoch": done.kept.epoch,
        "validation": [round(point.scores.main, 4) for point in done.points],
        "losses": [{name: round(each, 2) for name, each in point.terms.items()} for point in done.points],
        "beams": scores,
        "consensus": {key: round(value, 4) for key, value in summarize(floor, references, known).items()},
    }


if __name__ == "__main__":
    main()
