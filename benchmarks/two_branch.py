"""`python -m benchmarks.two_branch`: mining, lambda, word vectors and text encoders on precomputed features.

Every arm is the preset of a two-branch system with small layers and some changes. All arms of a part have the
same images, batches, epochs and seeds. The epoch is chosen on `val`, and `test` is reported, as described in
`benchmarks.flickr8k_halves`. Finished runs are kept in the folder, so an interrupted study continues;
`--report` prints what there is.

    python -m benchmarks.two_branch DATASET FEATURES VECTORS --to study
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from ruamel.yaml import YAML

from benchmarks.drawn import draw_dataset, draw_store
from fne.core.device import prepare_device
from fne.core.files import write_text
from fne.core.moved_keys import put
from fne.core.params import load_params, load_runtime
from fne.metrics.intervals import RSUM, Ranked, draws, metrics_of_draws, percentiles
from fne.metrics.ranks import rank
from fne.metrics.recall import RECALLS
from fne.papers.presets import preset
from fne.store.catalog import in_split, read_captions
from fne.store.rows import Rows
from fne.tasks.matching.data import Pairs, read_inputs
from fne.tasks.matching.encode import encode_captions, encode_images
from fne.tasks.matching.methods import make_model
from fne.tasks.matching.settings import Train
from fne.text.tokens import read_tokens
from fne.training.run import Job
from stages import catalog, embed, standardize, tokenize

ROOT = Path(__file__).parents[1]
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
SAMPLES = 2000
METHODS = ("K1", "K10", "all", "hard", "semi")
LAMBDAS = (0.1, 1.0)
COUNTS = (1, 3, 10, 30, 63)
# Whether words have the vectors of the file, and what happens to those that the file lacks.
WORDS = {"dropped": (True, "drop"), "completed": (True, "random"), "random": (False, "random")}
HIDDEN = ("train.image_heads.mlp.hidden", "train.text_encoders.bow_mlp.hidden")
SMALL = {"train.embed_dim": 256, "train.word_dim": 50, **{key: [512] for key in HIDDEN}}
LEARNED = {"train.words": "learned"}
GRU = {"train.text_encoder": "gru", "train.text_encoders.gru.initial": "torch", **LEARNED}


@dataclass(frozen=True)
class Arm:
    """What one arm of the study trains: a two-branch method with changes, or a closed form."""

    part: str
    method: str
    changes: Mapping[str, Any]
    words: str = "dropped"  # a key of `WORDS`


def arms(epochs: int, rate: float, long: int) -> dict[str, Arm]:
    """Return all arms by name, in the order in which they run."""
    budget = {"train.epochs": epochs, "train.patience": epochs, "train.learning_rate": rate}
    base = SMALL | budget
    both = base | {"train.caption_anchors": 1.0}
    found = {
        f"{method}, lambda {weight:g}": Arm("mining", method, base | {"train.caption_anchors": weight})
        for weight in LAMBDAS
        for method in METHODS
    }
    found |= {
        "mean GloVe, fixed": Arm("text", "K10", both),
        "mean GloVe, learned": Arm("text", "K10", both | LEARNED, "completed"),
        "mean of random words, learned": Arm("text", "K10", both | LEARNED, "random"),
        "GRU from GloVe": Arm("text", "K10", both | GRU, "completed"),
        "GRU from random words": Arm("text", "K10", both | GRU, "random"),
    }
    for count in COUNTS:
        found[f"K = {count}"] = Arm("K", "K10", both | _nearest(count))
    for count in (1, 10):
        without = both | _nearest(count) | {key.replace("hidden", "dropout"): 0.0 for key in HIDDEN}
        found[f"K = {count}, no dropout"] = Arm("why", "K10", without)
    for count in (1, 10):
        found[f"K = {count}, GRU from GloVe"] = Arm("why", "K10", both | _nearest(count) | GRU, "completed")
    paper = SMALL | {"train.epochs": long, "train.patience": long, "train.learning_rate": 0.0002}
    found |= {f"{method}, {long} epochs at 0.0002": Arm("long", method, paper) for method in ("K1", "K10")}
    return found


def _nearest(count: int) -> dict[str, Any]:
    return {"train.loss": "top_k_hinge", "train.losses.top_k_hinge.k": count}


FLOORS = {
    "closed form, tf-idf": ({"train.method": "cca", **LEARNED}, "random"),
    "closed form, mean GloVe": ({"train.method": "cca", "train.methods.cca.text": "vectors"}, "dropped"),
}


def prepare(folder: Path, dataset: Path, features: Path, vectors: Path, settings: Mapping[str, Any]) -> None:
    """Run the stages of the pipeline: catalog, embeddings, and tokens for each of `WORDS`."""
    own = {"catalog.root": str(dataset), "catalog.images": "none", "embed.source": str(features)}
    shared = own | dict(settings)
    with contextlib.chdir(folder):
        write_params(shared)
        run_stage(catalog, *arguments("catalog"))
        run_stage(standardize, *arguments("standardize"))
        run_stage(embed, *arguments("embed"))
        for name, (pretrained, rule) in WORDS.items():
            file = vectors if pretrained else ROOT / "weights/no_words.yaml"
            write_params(shared | {"tokenize.vectors": str(file), "tokenize.without_vector": rule})
            outs = [f"captions/{name}/{each}" for each in ("vocabulary.json", "tokens.h5", "vectors.h5")]
            run_stage(tokenize, "data/captions.jsonl", *outs)


def train_section(method: str, changes: Mapping[str, Any], seed: int) -> Train:
    """Return the settings of the preset of a method, with changes."""
    content = load_params(ROOT / "params.yaml")["train"]
    overrides = preset(f"two-branch/{method}", "flickr8k").overrides
    for key, value in {**overrides, **changes, "train.seed": seed}.items():
        section, own = key.split(".", 1)
        if section == "train":
            put(content, own, value)
    return Train.model_validate(content)


def run(folder: Path, settings: Train, words: str) -> dict[str, Any]:
    """Train one model, and rank the test images and captions with it."""
    start = time.process_time()
    with contextlib.chdir(folder):
        runtime = load_runtime(Path("params.yaml"))
        tokens, vectors = Path(f"captions/{words}/tokens.h5"), Path(f"captions/{words}/vectors.h5")
        captions, embeddings = Path("data/captions.jsonl"), Path("features/embeddings")
        inputs = read_inputs(embeddings, captions, tokens, vectors)
        job = Job(prepare_device(runtime, settings.threads), runtime.scratch_folder())
        matcher, done, _ = make_model(settings, inputs, job)
        tested = in_split(read_captions(captions)[0], "test")
        pairs = Pairs(tested, Rows.open(embeddings, "embeddings"), read_tokens(tokens))
        images = torch.cat(list(encode_images(matcher, pairs, pairs.image_ids)))
        sentences = torch.cat(list(encode_captions(matcher, pairs, pairs.caption_ids)))
    caption_image = np.repeat(np.arange(len(tested)), pairs.caption_counts)
    ranking = rank(images, sentences, torch.from_numpy(caption_image), matcher.similarity, 0)
    return {
        "best_epoch": done.kept.epoch,
        "val": [round(point.scores.main, 2) for point in done.points],
        "loss": [round(point.loss, 5) for point in done.points],  # per pair
        "kept": round(done.kept.scores.main, 2),
        "seconds": round(time.process_time() - start, 1),
        "image_ranks": ranking.image_ranks.tolist(),
        "caption_ranks": ranking.caption_ranks.tolist(),
        "caption_image": caption_image.tolist(),
    }


def report(runs: Mapping[str, Sequence[Mapping[str, Any]]], parts: Mapping[str, str]) -> Iterator[str]:
    """Yield a Markdown table of each part; arms are compared with the first one of their part."""
    drawn = {name: np.mean([_rsums(each) for each in found], axis=0) for name, found in runs.items()}
    first: dict[str, str] = {}
    for name, found in runs.items():
        part = parts[name]
        if part not in first:
            columns = (
                "seeds",
                "val",
                "test",
                "95 %",
                "of each seed",
                "minus the first",
                "95 %",
                "best epochs",
            )
            yield f"\n| {' | '.join((part, *columns, 'seconds'))} |\n|{'---|' * (len(columns) + 2)}"
        opponent = drawn[first.setdefault(part, name)]
        test = np.array([_rsums(each)[0] for each in found])
        low, high = percentiles(drawn[name][1:])
        ahead_low, ahead_high = percentiles((drawn[name] - opponent)[1:])
        yield (
            f"| {name} | {len(found)} | {np.mean([each['kept'] for each in found]):.1f} | {test.mean():.1f} "
            f"| {low:.1f} to {high:.1f} | {' '.join(f'{each:.1f}' for each in test)} "
            f"| {drawn[name][0] - opponent[0]:+.1f} | {ahead_low:+.1f} to {ahead_high:+.1f} "
            f"| {' '.join(str(each['best_epoch']) for each in found)} "
            f"| {np.mean([each['seconds'] for each in found]):.0f} |"
        )


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path, exists=True))
@click.argument("features", type=click.Path(path_type=Path, exists=True))
@click.argument("vectors", type=FILE)
@click.option("--to", "folder", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--layer", default="conv5_3", show_default=True, help="Of FEATURES; standardized.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--epochs", default=15, show_default=True)
@click.option("--rate", default=0.001, show_default=True)
@click.option("--long", default=60, show_default=True, help="Epochs of the part 'long', with one seed.")
@click.option("--part", "wanted", multiple=True, help="Only this part; repeatable.")
@click.option("--report", "report_only", is_flag=True, help="Run nothing; print what is finished.")
def main(
    dataset: Path,
    features: Path,
    vectors: Path,
    folder: Path,
    layer: str,
    seeds: int,
    epochs: int,
    rate: float,
    long: int,
    wanted: tuple[str, ...],
    report_only: bool,
) -> None:
    """Run the study on DATASET with the row store FEATURES and the word VECTORS, and print its tables."""
    chosen = {name: arm for name, arm in arms(epochs, rate, long).items() if not wanted or arm.part in wanted}
    if not (folder / "captions/random/tokens.h5").exists():
        folder.mkdir(parents=True, exist_ok=True)
        embedding = {"embed.kind": "zscore", "embed.layers": [layer], "embed.rows": "none"}
        prepare(folder, dataset.resolve(), features.resolve(), vectors.resolve(), embedding)
    jobs: list[tuple[str, str, Train]] = []
    for name, (changes, words) in FLOORS.items():
        jobs.append((name, words, train_section("K10", changes, 0)))
    for seed in range(seeds):
        for name, arm in chosen.items():
            if arm.part != "long" or seed == 0:
                jobs.append((name, arm.words, train_section(arm.method, arm.changes, seed)))
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, words, settings in jobs:
        found = finished_run(folder, settings, words)
        if found is None and not report_only:
            found = run(folder, settings, words)
            write_text(run_file(folder, settings, words), json.dumps(found))
            click.echo(
                f"{name}, seed {settings.seed}: val {found['kept']:.1f}, {found['seconds']} s", err=True
            )
        if found is not None:
            runs.setdefault(name, []).append(found)
    parts = dict.fromkeys(FLOORS, "floors") | {name: arm.part for name, arm in chosen.items()}
    click.echo(
        "\n".join(report(dict(sorted(runs.items(), key=lambda item: list(parts).index(item[0]))), parts))
    )


def run_file(folder: Path, settings: Train, words: str) -> Path:
    """Return the file of a run: settings that apply, and words, decide its name."""
    key = json.dumps([settings.applied(), words], sort_keys=True, default=str)
    return folder / "runs" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def finished_run(folder: Path, settings: Train, words: str) -> dict[str, Any] | None:
    """Return a run that was finished before, or None."""
    file = run_file(folder, settings, words)
    file.parent.mkdir(exist_ok=True)
    return json.loads(file.read_text()) if file.exists() else None


def _rsums(found: Mapping[str, Any]) -> np.ndarray:
    """Return the sum of recalls of a run, and that of each sample of the test images (1 + samples)."""
    images, captions, owners = (
        np.array(found[key]) for key in ("image_ranks", "caption_ranks", "caption_image")
    )
    ranked = Ranked(images, captions, owners, np.zeros(len(images), dtype=np.int64))
    times = [np.ones((1, len(images))), *draws(ranked.folds, SAMPLES, seed=0)]
    return np.concatenate([metrics_of_draws(ranked, each, RECALLS)[RSUM] for each in times])


def run_stage(module: Any, *arguments: str) -> None:
    """Run a stage of the pipeline in the current folder."""
    for each in arguments:
        Path(each).parent.mkdir(parents=True, exist_ok=True)
    module.main.main([*arguments], standalone_mode=False)


def arguments(stage: str) -> list[str]:
    """Return the arguments with which the pipeline calls a stage.

    Example:
        >>> arguments("embed")
        ['features/statistics.h5', 'features/embeddings']
    """
    command = load_params(ROOT / "dvc.yaml")["stages"][stage]["cmd"]
    return str(command[-1] if isinstance(command, list) else command).split()[3:]  # after python -m stages.X


def write_params(changes: Mapping[str, Any]) -> None:
    """Write `params.yaml` of the project, with changes, into the current folder."""
    content = load_params(ROOT / "params.yaml")
    for key, value in changes.items():
        put(content, key, value)
    with Path("params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(content, file)


def tiny(folder: Path) -> None:
    """Run with little data."""
    dataset = draw_dataset(folder, images=60)
    vectors = folder / "words.txt"
    drawn = zip(("a", "circle", "red"), np.random.default_rng(0).random((3, 50)), strict=True)
    vectors.write_text("".join(f"{word} {' '.join(map(str, values))}\n" for word, values in drawn))
    few = ["--to", str(folder / "study"), "--seeds", "1", "--epochs", "1", "--long", "1", "--part", "mining"]
    files = [str(each) for each in (dataset, draw_store(dataset), vectors)]
    main.main([*files, *few], standalone_mode=False)


if __name__ == "__main__":
    main()
