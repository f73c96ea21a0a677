"""How time and memory of the stages grow with the data: `python -m benchmarks.scale`.

Every stage runs at three sizes on made-up data of Flickr8k's kind, each time in a process of its own with
an empty scratch folder; what it takes with next to no data is subtracted. The exponent is the slope of the
logarithms: 1 grows as the data do, 2 as their square.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
from PIL import Image as Picture
from ruamel.yaml import YAML

from benchmarks.flickr8k import FEATURES, draw_captions
from fne.store.catalog import read_images, write_images
from fne.store.journal import Journal
from fne.store.layout import Layer, plan_shards
from fne.store.lineage import merge
from fne.store.writer import write_rows
from stages.catalog import main as catalog
from stages.embed import main as embed
from stages.encode import main as encode
from stages.evaluate import main as evaluate
from stages.extract import main as extract
from stages.standardize import main as standardize
from stages.tokenize import main as tokenize
from stages.train import main as train

PROJECT = Path(__file__).parent.parent
# The first of four sizes only shows what a stage takes to start; that is subtracted from the others.
EXTRACTED = (2, 16, 32, 64)
SIZES = (200, 2_000, 4_000, 8_000)
CAPTIONS = 5  # an image
VALIDATION = 100  # images; of the rest one half is for training, the other for testing
SETTINGS = {
    "train": {"embed_dim": 1024, "word_dim": 300, "batch": 128, "epochs": 1},
    "runtime": {"scratch": ".fne"},
}
STAGES: dict[str, tuple[click.Command, str]] = {
    "catalog": (catalog, "data/images.jsonl data/captions.jsonl data/rejects.csv"),
    "standardize": (standardize, "data/images.jsonl data/captions.jsonl features/statistics.h5"),
    "embed": (embed, "features/statistics.h5 features/embeddings"),
    "tokenize": (tokenize, "data/captions.jsonl captions/vocabulary.json captions/tokens.h5"),
    "train, one epoch": (
        train,
        "features/embeddings data/captions.jsonl captions/tokens.h5 models/model.safetensors models/history",
    ),
    "encode": (
        encode,
        "models/model.safetensors features/embeddings data/captions.jsonl captions/tokens.h5 "
        "vectors/images vectors/captions",
    ),
    "evaluate": (
        evaluate,
        "vectors/images vectors/captions data/captions.jsonl "
        "metrics/retrieval.json metrics/intervals.json metrics/ranks.h5",
    ),
}


@dataclass(frozen=True)
class Cost:
    """What a run took: seconds, and megabytes at the peak."""

    seconds: float
    megabytes: float


@click.command()
@click.option("--rounds", default=1, show_default=True, help="Runs of which the fastest counts.")
def main(rounds: int) -> None:
    """Print time, memory and their exponents for every stage."""
    head = f"{'stage':<18} {'images':>21} {'seconds':>22} {'exponent':>8} {'MB':>18} {'exponent':>8}"
    print(f"{head}  at the start")
    with tempfile.TemporaryDirectory() as name:
        costs: dict[str, list[Cost]] = {stage: [] for stage in STAGES}
        for size in SIZES:
            folder = Path(name, str(size))
            _write_dataset(folder / "pictures", size)
            os.chdir(folder)
            for stage, (command, arguments) in STAGES.items():
                if stage == "standardize":
                    _write_activations()
                costs[stage].append(_cost(command, arguments, rounds))
        extraction = []
        for size in EXTRACTED:
            write_images(Path("data/some.jsonl"), read_images(Path("data/images.jsonl"))[0][:size])
            extraction.append(_cost(extract, "data/some.jsonl features/extracted", rounds))
        _print("extract", EXTRACTED, extraction)
        _print("keep rows", SIZES, [_measured(partial(_keep_rows, size), rounds) for size in SIZES])
        for stage, found in costs.items():
            _print(stage, SIZES, found)


def _print(stage: str, sizes: tuple[int, ...], costs: list[Cost]) -> None:
    start, *rest = costs
    seconds = [max(cost.seconds - start.seconds, 0.01) for cost in rest]
    megabytes = [max(cost.megabytes - start.megabytes, 1) for cost in rest]
    print(
        f"{stage:<18} {' / '.join(f'{size:,}' for size in sizes[1:]):>21} "
        f"{' / '.join(f'{each:.2f}' for each in seconds):>22} {_exponent(sizes[1:], seconds):>8.2f} "
        f"{' / '.join(f'{each:.0f}' for each in megabytes):>18} {_exponent(sizes[1:], megabytes):>8.2f}"
        f"  {start.seconds:.1f} s, {start.megabytes:.0f} MB",
        flush=True,
    )


def _exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _cost(command: click.Command, arguments: str, rounds: int) -> Cost:
    return _measured(lambda: command.main(arguments.split(), standalone_mode=False), rounds)


def _measured(run: Callable[[], object], rounds: int) -> Cost:
    costs = []
    for _ in range(rounds):
        shutil.rmtree(".fne", ignore_errors=True)
        start = time.perf_counter()
        peak = _peak_of(run)
        costs.append(Cost(time.perf_counter() - start, peak))
    return min(costs, key=lambda cost: cost.seconds)


def _peak_of(run: Callable[[], object]) -> float:
    """Run something in a child of its own; return the megabytes that the child took at most."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            run()
            code = 0
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"a stage ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss / 1024


def _write_dataset(folder: Path, size: int) -> None:
    """Write photograph-like files and their captions, and the parameters of a project."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True)
    words = iter(draw_captions(generator, size * CAPTIONS))
    images = []
    for number in range(size):
        coarse = generator.integers(0, 256, (15, 20, 3), dtype=np.uint8)
        Picture.fromarray(coarse).resize((500, 375)).save(folder / f"{number}.jpg", quality=85)
        half = "train" if number % 2 else "test"
        sentences = [{"raw": " ".join(f"w{word}" for word in next(words))} for _ in range(CAPTIONS)]
        images.append(
            {
                "filename": f"{number}.jpg",
                "split": "val" if number < VALIDATION else half,
                "sentences": sentences,
            }
        )
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    params = YAML().load(PROJECT / "params.yaml")
    for section, values in {**SETTINGS, "catalog": {"root": str(folder), "images": "."}}.items():
        params[section].update(values)
    params["extract"]["weights"] = str(PROJECT / params["extract"]["weights"])
    YAML().dump(params, folder.parent / "params.yaml")


def _write_activations() -> None:
    """Write random activations of VGG16's size for all images."""
    images, artifact = read_images(Path("data/images.jsonl"))
    generator = np.random.default_rng(0)

    def shards() -> Iterator[tuple[int, list[str], np.ndarray]]:
        for number, ids in plan_shards([image.id for image in images], 4).items():
            yield number, ids, generator.standard_normal((len(ids), FEATURES), dtype=np.float32)

    layers = [Layer("all", FEATURES)]
    write_rows(Path("features/activations"), "activations", layers, "float32", shards(), {}, merge(artifact))


def _keep_rows(count: int) -> None:
    """Do what a driver does with the rows of its workers: append them to the scratch folder."""
    journal = Journal(Path("features/kept.rows"), FEATURES)
    row = np.zeros(FEATURES, dtype=np.float32)
    journal.lock()
    for number in range(count):
        journal.append(f"{number:064x}", row)
    journal.unlock()
    journal.path.unlink()


if __name__ == "__main__":
    main()
