"""`python -m benchmarks.finetuning`: what fine-tuning the last block of VGG16 changes on few photographs.

A proof that it works, and nothing more: a few hundred photographs are far too few for a claim. The model is
trained on conv5_3, then the last block of the network is trained with it. Both are scored on the test split,
and so is their difference, over the same resampled images. Everything that is finished is kept in the
folder, so an interrupted run continues.

    python -m benchmarks.finetuning DATASET WEIGHTS --to FOLDER
"""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from benchmarks.drawn import draw_dataset
from fne.core.settings import load_params, put, read_yaml
from fne.evaluation.intervals import Ranked
from fne.evaluation.paired import compare_rsums, rsum_samples
from fne.report.sources import LOSS, read_tables
from fne.report.sources import RSUM as VALIDATION
from fne.store.arrays import read_arrays

ROOT = Path(__file__).parents[1]
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
    "train.bow_mlp.hidden": [256],
    "train.bow_mlp.dropout": 0.25,
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
    "train.instance.dropout": 0.25,
    "finetune.learning_rate": 0.005,
    "finetune.first": "conv5_1",
    "finetune.batch": 16,
    "finetune.candidates": 128,
    "finetune.margin": 0.5,
    "finetune.cnn_rate": 0.1,
}
MADE_ONCE = ("catalog", "extract", "standardize", "embed", "tokenize", "train")
# The stages that score the model before the fine-tuning, and those of the pipeline that tunes it.
BEFORE, AFTER = ("encode", "evaluate"), ("finetune", "encode_tuned", "evaluate_tuned")


@click.command()
@click.argument("dataset", type=click.Path(exists=True, path_type=Path))
@click.argument("weights", type=click.Path(exists=True, path_type=Path))
@click.option("--to", "folder", type=click.Path(path_type=Path), required=True, help="Where to work.")
@click.option("--epochs", default=3, show_default=True, help="Epochs of the fine-tuning.")
def main(dataset: Path, weights: Path, folder: Path, epochs: int) -> None:
    """Train a model on photographs of DATASET, then VGG16's last block with it; WEIGHTS are torchvision's."""
    measure(dataset, weights, folder, epochs, SETTINGS)


def measure(
    dataset: Path, weights: Path, folder: Path, epochs: int, chosen: Mapping[str, Any] = SETTINGS
) -> None:
    """Train with chosen settings, then fine-tune, and print both scores."""
    settings = {
        **chosen,
        "catalog.root": str(dataset.resolve()),
        "extract.weights": str(weights.resolve()),
        "extract.input": "torchvision",
    }
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    with contextlib.chdir(folder):
        shutil.copytree(ROOT / "weights", "weights", dirs_exist_ok=True)
        write_params(settings | {"finetune.epochs": epochs})
        for curves in ("metrics/curves", "metrics/tuned_curves"):
            shutil.rmtree(curves, ignore_errors=True)  # DVC removes outs before a stage; no DVC here
        for stage in (*MADE_ONCE, *BEFORE, *AFTER):
            run_stage(*module_and_arguments(stage))
        for name, metrics, ranks in (("before", "retrieval", "ranks"), ("after", "tuned", "tuned_ranks")):
            found[name] = read_ranks(Path(f"metrics/{ranks}.h5"))
            click.echo(f"{name}: {Path(f'metrics/{metrics}.json').read_text()}")
        series = read_tables(Path("models/tuning")).series
    click.echo(described(found["before"], found["after"]))
    for name, title in ((LOSS, "training objective"), (VALIDATION, "validation rsum")):
        click.echo(f"{title}: {', '.join(f'{value:.3f}' for value in series[name].values())}")


def described(before: Ranked, after: Ranked) -> str:
    """Compare the sums of recalls of two evaluations of the same images, over the same resampled images."""
    one, other = rsum_samples([[before], [after]])
    found = compare_rsums(one, other, enough=False)
    sides = [
        f"{value:.1f} ({low:.1f} to {high:.1f})"
        for value, (low, high) in ((found.a, found.a_interval), (found.b, found.b_interval))
    ]
    return (
        f"rsum {sides[0]} before, {sides[1]} after; the difference is {found.b - found.a:+.1f} "
        f"({found.low:+.1f} to {found.high:+.1f}); {found.verdict}"
    )


def read_ranks(path: Path) -> Ranked:
    """Read the ranks of an evaluation."""
    arrays = read_arrays(path, "ranks")
    return Ranked(*(arrays[name] for name in ("image_ranks", "caption_ranks", "caption_image", "folds")))


def run_stage(module: str, arguments: Sequence[str]) -> None:
    """Run a stage of the pipeline in the current folder."""
    for each in arguments:
        Path(each).parent.mkdir(parents=True, exist_ok=True)
    import_module(module).main.main([*arguments], standalone_mode=False)


def module_and_arguments(stage: str) -> tuple[str, list[str]]:
    """Return the module of a stage and the arguments with which its pipeline calls it.

    Example:
        >>> module_and_arguments("embed")
        ('stages.embed', ['features/statistics.h5', 'features/embeddings'])
    """
    pipeline = "pipelines/finetuning/pipeline.yaml" if stage in AFTER else "dvc.yaml"
    _, _, module, *arguments = read_yaml(ROOT / pipeline)["stages"][stage]["cmd"].split()
    return module, arguments


def write_params(changes: Mapping[str, Any]) -> None:
    """Write `params.yaml` of the project, with changes, into the current folder."""
    content = load_params(ROOT / "params.yaml")
    for key, value in changes.items():
        put(content, key, value)
    with Path("params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(content, file)


def tiny(folder: Path) -> None:
    """Run with drawn images and the first layer of AlexNet."""
    small = {"extract.backbone": "alexnet", "extract.layers": ["conv1"], "embed.layer": "conv1"}
    small |= {"train.epochs": 1, "train.embed_dim": 8, "train.word_dim": 8, "finetune.first": "conv1"}
    small |= {"train.bow_mlp.hidden": [8], "finetune.batch": 4, "finetune.candidates": 8}
    weights = ROOT / "weights/random.yaml"
    measure(draw_dataset(folder), weights, folder / "project", 1, SETTINGS | small)


if __name__ == "__main__":
    main()
