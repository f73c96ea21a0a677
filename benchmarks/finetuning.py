"""`python -m benchmarks.finetuning`: what fine-tuning the last block of VGG16 changes on few photographs.

A proof that it works, and nothing more: a few hundred photographs are far too few for a claim. The model is
trained on conv5_3, then the last block of the network is trained with it. Both are scored on the test split,
and so is their difference, over the same resampled images. Everything that is finished is kept in the
folder, so an interrupted run continues.

    python -m benchmarks.finetuning DATASET WEIGHTS --to FOLDER
"""

import contextlib
import shutil
from pathlib import Path

import click
import numpy as np

from benchmarks.two_branch import run_stage, write_params
from fne.metrics.intervals import RSUM, SAMPLES, SEED, Ranked, draws, metrics_of_draws, percentiles
from fne.report.sources import LOSS, read_tables
from fne.store.arrays import read_arrays
from stages import catalog, embed, encode, evaluate, extract, finetune, standardize, tokenize, train

RECALLS = (1, 5, 10)
SETTINGS = {
    "extract.layers": ["conv5_3"],
    "extract.crops": "center",
    "extract.shards": 1,
    "embed.kind": "plain",
    "embed.layer": "conv5_3",
    "train.start": "random",
    "train.rates": "equal",
    "train.image_head": "dual_path",
    "train.text_encoder": "bow_mlp",
    "train.text_encoders.bow_mlp.hidden": [256],
    "train.text_encoders.bow_mlp.dropout": 0.25,
    "train.rectified": True,
    "train.embed_dim": 256,
    "train.word_dim": 64,
    "train.captions": "all",
    "train.optimizer": "sgd_nesterov",
    "train.learning_rate": 0.02,
    "train.epochs": 20,
    "train.patience": 20,
    "train.reduce": "mean_violating",
    "train.image_class_weight": 1.0,
    "train.text_class_weight": 1.0,
    "train.terms.instance.dropout": 0.25,
    "finetune.learning_rate": 0.005,
    "finetune.first": "conv5_1",
    "finetune.batch": 16,
    "finetune.candidates": 128,
    "finetune.margin": 0.5,
    "finetune.cnn_rate": 0.1,
}
MADE_ONCE = (
    (catalog, "data/images.jsonl data/captions.jsonl data/rejects.csv data/catalog.json"),
    (extract, "data/images.jsonl features/activations"),
    (standardize, "data/images.jsonl data/captions.jsonl features/statistics.h5"),
    (embed, "features/statistics.h5 features/embeddings"),
    (tokenize, "data/captions.jsonl captions/vocabulary.json captions/tokens.h5 captions/vectors.h5"),
    (
        train,
        "features/embeddings data/captions.jsonl captions/tokens.h5 captions/vectors.h5 "
        "models/matching.safetensors models/classifier.safetensors models/history metrics/training.json",
    ),
)
SCORED = (
    (
        finetune,
        "models/matching.safetensors models/classifier.safetensors data/images.jsonl data/captions.jsonl "
        "captions/tokens.h5 models/tuned.safetensors models/tuning",
    ),
    (
        encode,
        "models/matching.safetensors models/tuned.safetensors data/images.jsonl features/embeddings "
        "data/captions.jsonl captions/tokens.h5 vectors/images vectors/captions",
    ),
    (
        evaluate,
        "vectors/images vectors/captions data/captions.jsonl metrics/retrieval.json metrics/intervals.json "
        "metrics/curves metrics/ranks.h5",
    ),
)


@click.command()
@click.argument("dataset", type=click.Path(exists=True, path_type=Path))
@click.argument("weights", type=click.Path(exists=True, path_type=Path))
@click.option("--to", "folder", type=click.Path(path_type=Path), required=True, help="Where to work.")
@click.option("--epochs", default=3, show_default=True, help="Epochs of the fine-tuning.")
def main(dataset: Path, weights: Path, folder: Path, epochs: int) -> None:
    """Train a model on photographs of DATASET, then VGG16's last block with it; WEIGHTS are torchvision's."""
    settings = SETTINGS | {
        "catalog.root": str(dataset.resolve()),
        "extract.weights": str(weights.resolve()),
        "extract.input": "torchvision",
    }
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    with contextlib.chdir(folder):
        shutil.copytree(Path(__file__).parents[1] / "weights", "weights", dirs_exist_ok=True)
        for name, count in (("before", 0), ("after", epochs)):
            write_params(settings | {"finetune.epochs": count})
            for module, arguments in (*(MADE_ONCE if name == "before" else ()), *SCORED):
                run_stage(module, *arguments.split())
            found[name] = read_ranks(Path("metrics/ranks.h5"))
            click.echo(f"{name}: {Path('metrics/retrieval.json').read_text()}")
        losses = read_tables(Path("models/tuning")).series[LOSS]
    told = [f"{value:.1f} ({low:.1f} to {high:.1f})" for value, low, high in map(rsum, found.values())]
    low, high = rsum_difference(found["before"], found["after"])
    click.echo(f"rsum {told[0]} before, {told[1]} after; the difference is within {low:+.1f} to {high:+.1f}")
    click.echo(f"training objective: {', '.join(f'{value:.3f}' for value in losses.values())}")


def read_ranks(path: Path) -> Ranked:
    """Read the ranks of an evaluation."""
    arrays = read_arrays(path, "ranks")
    return Ranked(*(arrays[name] for name in ("image_ranks", "caption_ranks", "caption_image", "folds")))


def rsum(ranked: Ranked) -> tuple[float, float, float]:
    """Return the sum of recalls of an evaluation, and its 95 % interval over resampled images."""
    once = np.ones((1, len(ranked.image_ranks)), dtype=np.int64)
    value = float(metrics_of_draws(ranked, once, RECALLS)[RSUM][0])
    sampled = [metrics_of_draws(ranked, times, RECALLS)[RSUM] for times in draws(ranked.folds, SAMPLES, SEED)]
    return value, *percentiles(np.concatenate(sampled))


def rsum_difference(before: Ranked, after: Ranked) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two sums of recalls, over the same resampled images."""
    return percentiles(
        np.concatenate(
            [
                metrics_of_draws(after, times, RECALLS)[RSUM] - metrics_of_draws(before, times, RECALLS)[RSUM]
                for times in draws(before.folds, SAMPLES, SEED)
            ]
        )
    )


if __name__ == "__main__":
    main()
