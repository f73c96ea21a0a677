"""How time and memory of the stages grow with the data: `python -m benchmarks.scale`.

Every stage runs at three sizes on random data similar to Flickr8k, each time in a new process with
an empty scratch folder. The cost of a run with very little data is subtracted. The exponent is the
slope in a log-log plot: 1 means linear growth, 2 quadratic growth.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image as Picture
from ruamel.yaml import YAML

from benchmarks.flickr8k import FEATURES, draw_captions
from benchmarks.timing import PROJECT
from fne.store.artifact import merge
from fne.store.catalog import read_images, write_images
from fne.store.journal import Journal
from fne.store.layout import Layer, plan_shards
from fne.store.rows import write_rows
from stages.catalog import main as catalog
from stages.embed import main as embed
from stages.encode import main as encode
from stages.evaluate import main as evaluate
from stages.extract import main as extract
from stages.standardize import main as standardize
from stages.tokenize import main as tokenize
from stages.train import main as train

# The first of the four sizes measures the cost of starting a stage, which is subtracted from the others.
EXTRACTED = (2, 16, 32, 64)
SIZES = (200, 2_000, 4_000, 8_000)
CAPTIONS = 5  # per image
VALIDATION = 100  # images; the others are split evenly into train and test
SETTINGS = {
    "train": {"embed_dim": 1024, "word_dim": 300, "batch": 128, "epochs": 1},
    "runtime": {"scratch": ".fne"},
}
TINY: dict[str, dict[str, Any]] = {
    "extract": {"backbone": "alexnet", "crops": "center", "layers": ["conv1"]},
    "train": {"embed_dim": 16, "word_dim": 8, "batch": 8, "epochs": 1},
    "runtime": {"scratch": ".fne"},
}
STAGES: dict[str, tuple[click.Command, str]] = {
    "catalog": (catalog, "data/images.jsonl data/captions.jsonl data/rejects.csv data/catalog.json"),
    "standardize": (standardize, "data/images.jsonl data/captions.jsonl features/statistics.h5"),
    "embed": (embed, "features/statistics.h5 features/embeddings"),
    "tokenize": (
        tokenize,
        "data/captions.jsonl captions/vocabulary.json captions/tokens.h5 captions/vectors.h5",
    ),
    "train, one epoch": (
        train,
        "features/embeddings data/captions.jsonl captions/tokens.h5 captions/vectors.h5 "
        "models/model.safetensors models/classifier.safetensors models/history metrics/training.json",
    ),
    "encode": (
        encode,
        "models/model.safetensors features/embeddings data/captions.jsonl captions/tokens.h5 "
        "captions/vectors.h5 vectors/images vectors/captions",
    ),
    "evaluate": (
        evaluate,
        "vectors/images vectors/captions data/captions.jsonl "
        "metrics/retrieval.json metrics/intervals.json metrics/curves metrics/ranks.h5",
    ),
}


@dataclass(frozen=True)
class Cost:
    """The cost of a run: seconds, and megabytes at the peak."""

    seconds: float
    megabytes: float


@click.command()
@click.option(
    "--rounds", default=1, show_default=True, help="How often to run each stage; the fastest run counts."
)
def main(rounds: int) -> None:
    """Print time, memory and their exponents for every stage."""
    measure(rounds)


def measure(
    rounds: int,
    sizes: tuple[int, ...] = SIZES,
    extracted: tuple[int, ...] = EXTRACTED,
    validation: int = VALIDATION,
    settings: Mapping[str, Mapping[str, Any]] = SETTINGS,
) -> None:
    """Print the costs of all stages for some numbers of images, the first of which stands for the start."""
    head = f"{'stage':<18} {'images':>21} {'seconds':>22} {'exponent':>8} {'MB':>18} {'exponent':>8}"
    print(f"{head}  startup")
    with tempfile.TemporaryDirectory() as name:
        costs: dict[str, list[Cost]] = {stage: [] for stage in STAGES}
        for size in sizes:
            folder = Path(name, str(size))
            _write_dataset(folder / "pictures", size, validation, settings)
            os.chdir(folder)
            for stage, (command, arguments) in STAGES.items():
                if stage == "standardize":
                    _write_activations()
                costs[stage].append(_cost(command, arguments, rounds))
        extraction = []
        for size in extracted:
            write_images(Path("data/some.jsonl"), read_images(Path("data/images.jsonl"))[0][:size])
            extraction.append(_cost(extract, "data/some.jsonl features/extracted", rounds))
        _print_row("extract", extracted, extraction)
        _print_row("append rows", sizes, [_measure(partial(_append_rows, size), rounds) for size in sizes])
        for stage, found in costs.items():
            _print_row(stage, sizes, found)


def _print_row(stage: str, sizes: tuple[int, ...], costs: list[Cost]) -> None:
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
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0]) if len(sizes) > 1 else math.nan


def _cost(command: click.Command, arguments: str, rounds: int) -> Cost:
    return _measure(lambda: command.main(arguments.split(), standalone_mode=False), rounds)


def _measure(run: Callable[[], object], rounds: int) -> Cost:
    costs = []
    for _ in range(rounds):
        shutil.rmtree(".fne", ignore_errors=True)
        start = time.perf_counter()
        peak = _peak_memory(run)
        costs.append(Cost(time.perf_counter() - start, peak))
    return min(costs, key=lambda cost: cost.seconds)


def _peak_memory(run: Callable[[], object]) -> float:
    """Run a function in a forked process; return the peak memory of that process in megabytes."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            run()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"a stage failed with exit code {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss / 1024


def _write_dataset(
    folder: Path, size: int, validation: int, settings: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write images similar to photographs, their captions, and the parameters of a project."""
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
                "split": "val" if number < validation else half,
                "sentences": sentences,
            }
        )
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    params = YAML().load(PROJECT / "params.yaml")
    for section, values in {**settings, "catalog": {"root": str(folder), "images": "."}}.items():
        params[section].update(values)
    params["extract"]["weights"] = str(PROJECT / params["extract"]["weights"])
    params["tokenize"]["vectors"] = str(PROJECT / params["tokenize"]["vectors"])
    YAML().dump(params, folder.parent / "params.yaml")


def _write_activations() -> None:
    """Write random activations with the size of VGG16 for all images."""
    images, artifact = read_images(Path("data/images.jsonl"))
    generator = np.random.default_rng(0)

    def shards() -> Iterator[tuple[int, list[str], np.ndarray]]:
        for number, ids in plan_shards([image.id for image in images], 4).items():
            yield number, ids, generator.standard_normal((len(ids), FEATURES), dtype=np.float32)

    layers = [Layer("all", FEATURES)]
    write_rows(Path("features/activations"), "activations", layers, "float32", shards(), {}, merge(artifact))


def _append_rows(count: int) -> None:
    """Append rows to the scratch folder, as a driver does with the rows of its workers."""
    journal = Journal(Path("features/kept.rows"), FEATURES)
    row = np.zeros(FEATURES, dtype=np.float32)
    journal.lock()
    for number in range(count):
        journal.append(f"{number:064x}", row)
    journal.unlock()
    journal.path.unlink()


def tiny(folder: Path) -> None:
    """Run with one size, a small network and few dimensions."""
    code = "from benchmarks.scale import *; measure(1, (24,), (2,), 4, TINY)"
    # A new process: one that computed with several threads must not fork.
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True)


if __name__ == "__main__":
    main()
