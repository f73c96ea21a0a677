"""`python -m benchmarks.dual_path`: instance loss, ranking and both on precomputed features.

All arms have the same image head, batches, number of updates, optimizer and seeds. They differ in the
terms of the objective, in the classes of the instance loss, or in the text encoder. The epoch is chosen on
`val`, and `test` is reported, as described in `benchmarks.flickr8k_halves`, beside the closed form of the
same features. Finished runs are kept in the folder, so an interrupted study continues; `--report` prints what
there is.

    python -m benchmarks.dual_path DATASET FEATURES --to study
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.drawn import draw_dataset, draw_store
from benchmarks.two_branch import ROOT, finished_run, report, run, run_file, run_stage, write_params
from fne.core.files import write_text
from fne.core.moved_keys import put
from fne.core.params import load_params
from fne.papers.presets import preset
from fne.tasks.matching.settings import Train
from stages import catalog, embed, standardize, tokenize

WORDS = "random"  # the folder of the tokens; words are learned from random vectors
FLOOR = "closed form, tf-idf"
# The paper's 3,000 and 10,000 classes, as fractions of its training images.
FRACTIONS = (3_000 / 113_287, 10_000 / 113_287)
SMALL = {
    "train.embed_dim": 256,
    "train.word_dim": 64,
    "train.batch": 64,
    "train.image_heads.dual_path.hidden": [256],
    "train.terms.instance.dropout": 0.5,
    "train.terms.instance.bias": False,
    "train.rectified": False,
    "train.keep": "best",
    "train.optimizer": "adam",
    "train.words_rate": 1.0,
    "train.classifier_rate": 1.0,
    "train.gain_rate": 1.0,
    # Of all wrong pairs that violate the margin; the hardest one alone does not start from random weights.
    "train.loss": "sum_hinge",
    "train.reduce": "mean_violating",
    "train.margin": 0.2,
}
BAG = {
    "train.text_encoder": "bow_mlp",
    "train.text_encoders.bow_mlp.hidden": [256],
    "train.text_encoders.bow_mlp.dropout": 0.0,
}
CNN = {
    "train.text_encoder": "text_cnn",
    "train.text_encoders.text_cnn.width": 0.0625,
    "train.text_encoders.text_cnn.blocks": [1, 1, 1, 1],
    "train.text_encoders.text_cnn.positions": 20,
    "train.text_encoders.text_cnn.shifts": 2,
}
TERMS = ("train.rank_weight", "train.image_class_weight", "train.text_class_weight")
OBJECTIVES: dict[str, tuple[Any, Any, Any]] = {
    "ranking": (1.0, 0.0, 0.0),
    "instance": (0.0, 1.0, 1.0),
    "both": (1.0, 1.0, 1.0),
    "instance, then ranking": ([0.0, 1.0], [1.0, 0.0], [1.0, 0.0]),
}


@dataclass(frozen=True)
class Arm:
    """What one arm of the study trains, and the part of the study that it belongs to."""

    part: str
    changes: Mapping[str, Any]


def arms(images: int, epochs: int, rate: float) -> dict[str, Arm]:
    """Return all arms by name, for a number of training images."""
    found = {}
    for title, encoder in (("mean of words", BAG), ("text CNN", CNN)):
        for name, weights in OBJECTIVES.items():
            phases = 2 if isinstance(weights[0], list) else 1
            budget = {"train.epochs": epochs // phases, "train.patience": epochs, "train.learning_rate": rate}
            changes = SMALL | encoder | budget | dict(zip(TERMS, weights, strict=True))
            found[f"{title}: {name}"] = Arm(f"objective, {title}", changes)
    instance = found["mean of words: instance"].changes
    found[f"{images:,} classes, one per image"] = Arm("classes", instance)
    for fraction in FRACTIONS:
        classes = round(fraction * images)
        own = instance | {"train.terms.instance.classes": classes}
        found[f"{classes:,} K-means classes"] = Arm("classes", own)
    return found


def prepare(folder: Path, dataset: Path, features: Path, layer: str) -> None:
    """Run the stages of the pipeline: catalog, embeddings and tokens."""
    captions, statistics = "data/captions.jsonl", "features/statistics.h5"
    with contextlib.chdir(folder):
        write_params(
            {
                "catalog.root": str(dataset),
                "catalog.images": "none",
                "embed.source": str(features),
                "embed.kind": "zscore",
                "embed.layers": [layer],
                "tokenize.cut": "split",
                "tokenize.longest": 20,
                "tokenize.vectors": str(ROOT / "weights/no_words.yaml"),
                "runtime.threads": 1,
            }
        )
        run_stage(catalog, "data/images.jsonl", captions, "data/rejects.csv", "data/catalog.json")
        run_stage(standardize, "data/images.jsonl", captions, statistics)
        run_stage(embed, statistics, "features/embeddings")
        outs = [f"captions/{WORDS}/{each}" for each in ("vocabulary.json", "tokens.h5", "vectors.h5")]
        run_stage(tokenize, captions, *outs)


def train_section(changes: Mapping[str, Any], seed: int) -> Train:
    """Return the settings of the dual-path preset, with changes."""
    content = load_params(ROOT / "params.yaml")["train"] | {"threads": 1}
    overrides = preset("dual-path/I", "flickr8k").overrides
    for key, value in {**overrides, **changes, "train.seed": seed}.items():
        section, own = key.split(".", 1)
        if section == "train":
            put(content, own, value)
    return Train.model_validate(content)


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path, exists=True))
@click.argument("features", type=click.Path(path_type=Path, exists=True))
@click.option("--to", "folder", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--layer", default="conv5_3", show_default=True, help="Of FEATURES; standardized.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--epochs", default=16, show_default=True)
@click.option("--rate", default=0.001, show_default=True)
@click.option("--images", default=6000, show_default=True, help="Training images of DATASET.")
@click.option("--part", "wanted", multiple=True, help="Only this part; repeatable.")
@click.option("--report", "report_only", is_flag=True, help="Run nothing; print what is finished.")
def main(
    dataset: Path,
    features: Path,
    folder: Path,
    layer: str,
    seeds: int,
    epochs: int,
    rate: float,
    images: int,
    wanted: tuple[str, ...],
    report_only: bool,
) -> None:
    """Run the study on DATASET with the row store FEATURES, and print its tables."""
    chosen = {
        name: arm for name, arm in arms(images, epochs, rate).items() if not wanted or arm.part in wanted
    }
    if not (folder / f"captions/{WORDS}/tokens.h5").exists():
        folder.mkdir(parents=True, exist_ok=True)
        prepare(folder, dataset.resolve(), features.resolve(), layer)
    jobs = [(FLOOR, train_section({"train.method": "cca"}, 0))]
    jobs += [
        (name, train_section(arm.changes, seed)) for seed in range(seeds) for name, arm in chosen.items()
    ]
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, settings in jobs:
        found = finished_run(folder, settings, WORDS)
        if found is None and not report_only:
            found = run(folder, settings, WORDS)
            write_text(run_file(folder, settings, WORDS), json.dumps(found))
            click.echo(
                f"{name}, seed {settings.seed}: val {found['kept']:.1f}, {found['seconds']} s", err=True
            )
        if found is not None:
            runs.setdefault(name, []).append(found)
    parts = {FLOOR: "floor"} | {name: arm.part for name, arm in chosen.items()}
    click.echo("\n".join(report({name: runs[name] for name in parts if name in runs}, parts)))


def tiny(folder: Path) -> None:
    """Run with little data."""
    dataset = draw_dataset(folder, images=60)
    few = ["--to", str(folder / "study"), "--seeds", "1", "--epochs", "2", "--images", "30"]
    few += ["--part", "objective, mean of words"]
    main.main([str(dataset), str(draw_store(dataset)), *few], standalone_mode=False)


if __name__ == "__main__":
    main()
