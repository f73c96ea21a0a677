"""`python -m benchmarks NAME…` runs benchmarks and updates their rows in benchmarks/README.md.

With `--tiny`, a NAME is a program of this folder, which runs with very little data: every one has a
function `tiny(folder)` for that, and the tests call it.
"""

import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click
import torch

from benchmarks.batches import batches
from benchmarks.captioning import beam_3, beam_7, caption_step, cider
from benchmarks.evaluation import evaluation_cosine, evaluation_memory, evaluation_order
from benchmarks.extraction import extraction, extraction_memory, extraction_onnx, extraction_sharing
from benchmarks.neighbors import neighbors
from benchmarks.order_similarity import order_similarity
from benchmarks.search import search
from benchmarks.statistics import statistics
from benchmarks.text_network import text_network
from benchmarks.timing import Ratio
from benchmarks.training_input import training_input
from benchmarks.training_step import training_step, training_step_order
from benchmarks.tuning_step import finetuning

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- written by make bench -->\n", "<!-- end of make bench -->\n"
HEAD = "| name | by median | by best | ours | opponent | goal | machine |\n|---|---|---|---|---|---|---|\n"
# Modules that hold what the programs share.
SHARED = ("__init__", "__main__", "drawn", "flickr8k", "timing")


class Benchmark(NamedTuple):
    """A comparison: how to run it, what is compared, and the ratio that ours should reach."""

    run: Callable[[], Ratio]
    ours: str
    opponent: str
    goal: float


TEN_CROP = "ten-crop VGG16 with the defaults of the stage"
BENCHMARKS = {
    "extraction_sharing": Benchmark(
        extraction_sharing,
        "ten-crop VGG16, shared crops, plain convolutions",
        "TenCrop and `create_feature_extractor`, one image per batch",
        2.0,
    ),
    "extraction": Benchmark(extraction, TEN_CROP, "TenCrop and `create_feature_extractor`", 6.5),
    "extraction_onnx": Benchmark(extraction_onnx, TEN_CROP, "onnxruntime, float32", 3.8),
    "extraction_memory": Benchmark(
        extraction_memory,
        "peak memory of extracting 100 images with AlexNet",
        "peak memory for 600 images",
        0.9,
    ),
    "batches": Benchmark(
        batches,
        "random batches of 128 ternary rows as float32, from two bit planes",
        "h5py, float32, auto-chunked",
        20,
    ),
    "statistics": Benchmark(
        statistics,
        "mean and deviation of 6,000 rows of 12,416 features in one pass",
        "NumPy, float64, two passes",
        5,
    ),
    "text_network": Benchmark(
        text_network,
        "captions through MiniLM, embeddings and all six blocks",
        "`encode` of sentence-transformers, the last block, same threads",
        1.0,
    ),
    "neighbors": Benchmark(
        neighbors,
        "a ternary query against 30,000 rows of 12,416, by counting bits in one thread",
        "a float32 product of the rows and one query, all threads",
        6,
    ),
    "training_step": Benchmark(
        training_step,
        "a training step, batch 128, 1,024 dimensions, cosine",
        "`pack_padded_sequence` and the default Adam of torch, as in VSE++",
        2.0,
    ),
    "training_step_order": Benchmark(
        training_step_order,
        "the same with the order similarity",
        "the same with one tensor (images, captions, dim)",
        2.7,
    ),
    "order_similarity": Benchmark(
        order_similarity,
        "the order similarity of a batch, forward and backward",
        "one tensor (images, captions, dim)",
        40,
    ),
    "training_input": Benchmark(
        training_input, "the fraction of an epoch that is not spent on drawing and reading batches", "", 0.97
    ),
    "evaluation_cosine": Benchmark(
        evaluation_cosine,
        "ranks and the ten best items in both directions, 5,000 x 25,000 x 1,024",
        "a loop over images with argsort, timed on 100 images",
        15,
    ),
    "evaluation_order": Benchmark(
        evaluation_order,
        "the same by order, 1,000 x 5,000 x 1,024",
        "the same loop, timed on 20 images",
        40,
    ),
    "evaluation_memory": Benchmark(
        evaluation_memory, "the peak memory of ranking 5,000 x 25,000 x 1,024", "a limit of 1.5 GB", 1.0
    ),
    "beam_3": Benchmark(
        beam_3,
        "captions of 8 words with a beam of 3 in one thread, 256 images, LSTM of 512 units, 2,540 words",
        "NeuralTalk's loop over images and hypotheses in NumPy, one thread, timed on 24 images",
        13,
    ),
    "beam_7": Benchmark(beam_7, "the same with a beam of 7", "the same loop", 13),
    "caption_step": Benchmark(
        caption_step,
        "a training step of a captioner, batch 128, 512 units, 512 word dimensions, 2,540 words",
        "packed `nn.LSTM`, padded cross entropy, the default Adam of torch",
        1.6,
    ),
    "finetuning": Benchmark(
        finetuning,
        "a step of fine-tuning with a captioner: the last block of VGG16, 32 images, 512 units",
        "the forward and backward pass of torch through the same layers, without a captioner",
        0.83,
    ),
    "cider": Benchmark(
        cider,
        "CIDEr-D of 1,000 captions with five references each",
        "the scorer of pycocoevalcap if installed, otherwise the usual algorithm with dictionaries",
        3,
    ),
    "search": Benchmark(
        search,
        "the first `fne search` for a sentence, without a cache, 8,000 images, 40,000 captions",
        "a limit of 3 s",
        1.0,
    ),
}


def programs() -> list[str]:
    """Return the names of all modules of this folder that can be run."""
    return [path.stem for path in sorted(README.parent.glob("*.py")) if path.stem not in SHARED]


def machine() -> str:
    """Describe this machine and how busy it is."""
    known = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", known.read_text()) if known.exists() else None
    name = found[1].strip() if found else platform.machine()
    wide = torch.backends.cpu.get_cpu_capability()
    return (
        f"{os.cpu_count()} cores of {name}, {wide}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )


def row(name: str, ratio: Ratio, where: str) -> str:
    """Return a row of the table."""
    _, ours, opponent, goal = BENCHMARKS[name]
    cells = [f"`{name}`", f"{ratio.median:.2f}", f"{ratio.best:.2f}", ours, opponent, f"{goal:g}", where]
    return f"| {' | '.join(cells)} |"


def with_rows(document: str, rows: Mapping[str, str]) -> str:
    """Return a document with some rows of its table replaced or added; rows of no benchmark go."""
    before, rest = document.split(BEGIN)
    table, after = rest.split(END)
    kept = {name: line for line, name in re.findall(r"^(\| `(\w+)` .*)$", table, re.MULTILINE)} | dict(rows)
    lines = [f"{kept[name]}\n" for name in BENCHMARKS if name in kept]
    return f"{before}{BEGIN}{HEAD}{''.join(lines)}{END}{after}"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--tiny", is_flag=True, help="Run programs with very little data; the README stays.")
def main(names: tuple[str, ...], tiny: bool) -> None:
    """Run benchmarks, or all of them without a name; each ends with a line NAME: RATIO, by median times."""
    known = programs() if tiny else list(BENCHMARKS)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"no benchmark {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    for name in names or known:
        if tiny:
            click.echo(f"\n{name}\n")
            with tempfile.TemporaryDirectory() as folder:
                import_module(f"benchmarks.{name}").tiny(Path(folder))
            continue
        click.echo(f"\n{BENCHMARKS[name].run.__doc__}\n")
        where = machine()
        found = BENCHMARKS[name].run()
        click.echo(f"{name}: {found.median:.2f}")
        README.write_text(
            with_rows(README.read_text("utf-8"), {name: row(name, found, where)}), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
