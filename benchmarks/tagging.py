"""`python -m benchmarks.tagging`: what helps a tagger, on imported features of a captioned data set.

A data set in Karpathy's format with five captions per image gets tags: the words that at least three captions
of an image say, of which the most frequent ones stay. Function words are left out, because they are true of
nearly every image. Then taggers are trained that differ in one thing each, and scored on the split `test`;
`val` chooses the epoch. The output is a table in Markdown with means and standard deviations over seeds.

    python -m benchmarks.tagging data/halves/dataset.json features/vgg16 --layer conv5_3 --seeds 3
"""

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from ruamel.yaml import YAML

from benchmarks.drawn import draw_dataset, draw_store
from fne.core.settings import load_params, parse_section, put
from fne.describing.concepts import recorded_source
from fne.describing.inputs import read_inputs
from fne.describing.run import train_describing_model
from fne.describing.settings import TrainTagger
from fne.describing.write import Writer
from fne.evaluation.score_tags import PATH, TagScores, images_to_tag, score_tags
from fne.store.catalog import read_captions
from fne.store.rows import Rows
from fne.text.caption_vocabulary import ptb_words
from fne.training.row_source import StoreRows
from fne.training.run import Job

PROJECT = Path(__file__).parents[1]
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
LEAST = 3  # captions of an image that say a word
_FUNCTION_WORDS = """
a an the this that these those some another other each both all its his her their it he she they him them
who which what there and or but while as of in on at to into onto from by for with without through over under
above below near next up down out off around across along behind between against is are be being been was were
has have had having does do doing
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
EMBEDDINGS = Path("features/embeddings")
CAPTIONS = Path("data/captions.jsonl")
# What all taggers share; each variant changes one thing.
SHARED: dict[str, Any] = {
    "units": 128,
    "word_dim": 64,
    "dropout": 0.3,
    "batch": 64,
    "learning_rate": [0.002, 0.001],
    "epochs": [6, 10],
    "patience": 10,
}
# Rows with more features need smaller steps.
CONCEPT_HEAD_RATES = {"layer": 0.0005, "fne": 0.0001}
ALONE = {"learns": "concept_head", "learning_rate": 0.001, "epochs": 20}
IMAGE = {
    "condition": "embedding",
    "concept_loss": "none",
    "learns": "jointly",
    "learning_rate": 0.002,
    "epochs": 16,
}
# Name: on which embedding, and what differs.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "concept head, logistic": ("layer", ALONE),
    "concept head, softmax": ("layer", ALONE | {"concept_loss": "softmax"}),
    "concept head, WARP": ("layer", ALONE | {"concept_loss": "warp"}),
    "concept head, logistic, biases start at zero": ("layer", ALONE | {"concept_bias": "zero"}),
    "concepts, rare first": ("layer", {}),
    "concepts, frequent first": ("layer", {"order": "frequent_first"}),
    "image vector, rare first": ("layer", IMAGE),
    "concept head, logistic, FNE": ("fne", ALONE),
    "concepts, rare first, FNE": ("fne", {}),
}
COLUMNS = (
    "class_precision",
    "class_recall",
    "class_f1",
    "image_precision",
    "image_recall",
    "image_f1",
    "pooled_f1",
)

Row = dict[str, float]


def majority_words(captions: Sequence[str], least: int = LEAST) -> set[str]:
    """Return the words that at least some captions of an image say, without function words.

    Example:
        >>> sorted(majority_words(["A dog runs.", "The dog", "a brown dog is running", "dogs"]))
        ['dog']
    """
    said = Counter(word for caption in captions for word in set(ptb_words(caption)))
    return {word for word, count in said.items() if count >= least} - FUNCTION_WORDS


def add_tags(dataset: dict[str, Any], count: int) -> list[str]:
    """Tag all images with the most frequent majority words of the training images; return these words."""
    words = {
        image["filename"]: majority_words([sentence["raw"] for sentence in image["sentences"]])
        for image in dataset["images"]
    }
    training = [words[image["filename"]] for image in dataset["images"] if image["split"] == "train"]
    counts = Counter(word for own in training for word in own)
    chosen = sorted(counts, key=lambda word: (-counts[word], word))[:count]
    for image in dataset["images"]:
        image["tags"] = sorted(words[image["filename"]] & set(chosen))
    return chosen


@contextmanager
def project(dataset: dict[str, Any], features: Path, embed: Mapping[str, Any]) -> Iterator[None]:
    """Within the block, the current folder is a project with a catalog and the embeddings of a data set."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            Path("set").mkdir()
            Path("set/dataset.json").write_text(json.dumps(dataset))
            shutil.copytree(PROJECT / "weights", "weights")
            yaml = YAML()
            params = yaml.load(PROJECT / "params.yaml")
            params["catalog"] |= {"root": str(Path("set").absolute()), "images": "none"}
            params["embed"] |= {"source": str(features), **embed}
            yaml.dump(params, Path("params.yaml"))
            for stage in ("catalog", "standardize", "embed"):
                _run(stage)
            yield
        finally:
            os.chdir(before)


def evaluate(changes: Mapping[str, Any], seed: int) -> tuple[TagScores, int]:
    """Train a tagger in the current project and score it on the split `test`; return its best epoch, too."""
    settings = tagger_settings(SHARED | dict(changes) | {"seed": seed})
    inputs = read_inputs(EMBEDDINGS, CAPTIONS, settings)
    task, done = train_describing_model(settings, inputs, Job(torch.device("cpu"), Path(".fne")))
    source, rows = recorded_source(settings.applied()), Rows.open(EMBEDDINGS, "embeddings")
    records = images_to_tag(read_captions(CAPTIONS)[0], source, "test")
    tags = Writer(task.model.eval(), inputs.vocabulary).tag_store(StoreRows(rows), records)
    truth = [source.names(record) for record in records]
    threshold = 0.5 if settings.concept_loss == "logistic" else None
    found = score_tags("test_full", inputs.vocabulary.concepts, truth, tags, 3, threshold)
    return found, done.kept.epoch


def tagger_settings(changes: Mapping[str, Any]) -> TrainTagger:
    """Return the settings of the project's tagger with changes."""
    content = dict(load_params(PROJECT / "params.yaml")["train_tagger"])
    for key, value in changes.items():
        put(content, key, value)
    settings, faults = parse_section({"train_tagger": content}, "train_tagger", TrainTagger)
    if settings is None:
        raise ValueError(faults)
    return settings


def table(results: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    """Return the means and standard deviations of metrics over seeds, in Markdown.

    Args:
        results: the metrics of each seed, by the name of the variant and the kind of answer.
    """
    names = ["mAP", *COLUMNS, "predicted_length"]
    lines = [
        f"| tagger | answer | {' | '.join(name.replace('_', ' ') for name in names)} |",
        f"|---|---|{'---:|' * len(names)}",
    ]
    for (variant, answer), rows in results.items():
        cells = [_cell([row[name] for row in rows if name in row]) for name in names]
        lines.append(f"| {variant} | {answer} | {' | '.join(cells)} |")
    return "\n".join(lines)


@click.command()
@click.argument("dataset", type=FILE)
@click.argument("features", type=FOLDER)
@click.option("--layer", default="conv5_3", show_default=True, help="The single layer.")
@click.option("--tags", "count", default=80, show_default=True, help="How many words become tags.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--epochs", type=int, help="Of every phase; without it, what each variant needs.")
@click.option("--only", multiple=True, type=click.Choice(list(VARIANTS)), help="Only these; repeatable.")
def main(
    dataset: Path,
    features: Path,
    layer: str,
    count: int,
    seeds: int,
    epochs: int | None,
    only: Sequence[str],
) -> None:
    """Train taggers on the FEATURES of a DATASET and print how good they are."""
    torch.set_num_threads(1)
    content = json.loads(dataset.read_text())
    chosen = add_tags(content, count)
    click.echo(f"tags: {', '.join(chosen)}", err=True)
    embeddings = {
        "layer": {"kind": "layer", "layer": layer, "rows": "none"},
        "fne": {"kind": "fne", "rows": "none"},
    }
    results: dict[tuple[str, str], list[Row]] = {}
    for kind, embed in embeddings.items():
        variants = {name: changes for name, (own, changes) in VARIANTS.items() if own == kind}
        fewer = {} if epochs is None else {"epochs": epochs}
        wanted = {name: own | fewer for name, own in variants.items() if not only or name in only}
        if wanted:
            with project(content, features.absolute(), embed):
                _add(results, wanted, CONCEPT_HEAD_RATES[kind], range(seeds))
    click.echo(table(results))


def _add(
    results: dict[tuple[str, str], list[Row]],
    variants: Mapping[str, Mapping[str, Any]],
    rate: float,
    seeds: Iterable[int],
) -> None:
    for seed in seeds:
        for name, changes in variants.items():
            started = time.process_time()
            evaluation, epoch = evaluate({"concept_head_rate": rate} | dict(changes), seed)
            metrics = evaluation.metrics
            ranked = {"mAP": metrics["mAP"]} if "mAP" in metrics else {}
            for answer in evaluation.answers:
                title = "own length" if answer == PATH else answer.replace("_", " ")
                results.setdefault((name, title), []).append(metrics[answer] | ranked)
            seconds = time.process_time() - started
            click.echo(f"{name}, seed {seed}: best epoch {epoch}, {seconds:.0f} CPU seconds", err=True)
        click.echo(table(results), err=True)


def _run(stage: str) -> None:
    """Run a stage as `dvc.yaml` does."""
    commands = YAML(typ="safe").load(PROJECT / "dvc.yaml")["stages"][stage]["cmd"]
    words = (commands if isinstance(commands, str) else commands[-1]).split()[3:]
    import_module(f"stages.{stage}").main(words, standalone_mode=False)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def tiny(folder: Path) -> None:
    """Run with little data."""
    dataset = draw_dataset(folder)
    files = [str(dataset / "dataset.json"), str(draw_store(dataset))]
    main.main([*files, "--tags", "5", "--seeds", "1", "--epochs", "1"], standalone_mode=False)


if __name__ == "__main__":
    main()
