"""What is in the picture? Linear classifiers on the full-network embedding and on a single layer.

For each tag (or folder, where a data set has no tags), a support vector machine decides
whether an image has it, cross-validated: no image is judged by a classifier that has
seen it. Run it where the pipeline has run: `python -m examples.classify`.
"""

from collections import Counter
from pathlib import Path

import click
import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from fne.store.catalog import Captioned, read_captions
from fne.store.rows import Rows


def labels(record: Captioned) -> set[str]:
    """Return the tags of an image, or the folder it is in."""
    folder = record.id.rpartition("/")[0]
    return set(record.tags) or ({folder} if folder else set())


def accuracy(features: np.ndarray, has_it: np.ndarray, folds: int, seed: int) -> float:
    """Return how many percent are judged right, those with and without the tag counted alike."""
    classifier = LinearSVC(class_weight="balanced", max_iter=10_000, random_state=seed)
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return 100 * cross_val_score(classifier, features, has_it, cv=splits, scoring="balanced_accuracy").mean()


@click.command()
@click.option("--folds", default=5, show_default=True)
@click.option("--repeats", default=10, show_default=True, help="How often the images are dealt into folds.")
@click.option("--layer", help="The single layer.  [default: the last]")
def main(folds: int, repeats: int, layer: str | None) -> None:
    """Compare features/embeddings with one layer of features/activations."""
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    ids = [record.id for record in captioned]
    embeddings, activations = (
        Rows.open(Path("features") / name, name) for name in ("embeddings", "activations")
    )
    layer = layer or activations.layers[-1].name
    # Rows of length one, so that the classifier is held back alike on both.
    single = normalize(activations.read(ids, np.float32)[:, activations.columns(layer)])
    full = normalize(embeddings.read(ids, np.float32))
    counts = Counter(label for record in captioned for label in labels(record))
    frequent = [label for label, count in counts.most_common() if folds <= count <= len(ids) - folds]
    table = []
    for label in frequent:
        has_it = np.array([label in labels(record) for record in captioned])
        table.append(
            [
                np.mean([accuracy(features, has_it, folds, seed) for seed in range(repeats)])
                for features in (full, single)
            ]
        )
        click.echo(f"| {label} | {counts[label]} | {table[-1][0]:.1f} | {table[-1][1]:.1f} |")
    if not table:
        raise click.ClickException(f"no tag or folder has {folds} images with it and {folds} without it")
    mean = np.mean(table, axis=0)
    click.echo(f"| mean of {len(frequent)} | | {mean[0]:.1f} | {mean[1]:.1f} |")


if __name__ == "__main__":
    main()
