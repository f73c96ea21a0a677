"""Image classification on every layer and on the full-network embedding: which layer is best for what?

For each tag, or for each folder in a data set without tags, a classifier decides whether an image has it. The
result is one table with a row per tag and a column per layer, and a plot of it. Three classifiers are there:
a linear support vector machine, the vote of the six nearest neighbors by Euclidean distance, and a dense net
with one hidden layer. The accuracy is cross-validated, or measured on the test split with `--split`. Run
`python -m examples.classify` in a project whose pipeline has run.
"""

import csv
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import click
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import average_precision_score, balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from fne.core.files import plain_cell
from fne.store.catalog import Captioned, read_captions
from fne.store.rows import Rows

FULL = "embedding"  # the column of features/embeddings
NEIGHBORS = 6
HIDDEN = 256  # units of the dense net
WIDTH, ROW, LEFT, TOP = 26, 18, 120, 70  # pixels of the plot
Folds = Sequence[tuple[np.ndarray, np.ndarray]]  # positions to train on and to judge
# Returns a score per image to judge, higher is surer, and whether the image has the tag.
Classify = Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Task:
    """A tag: which images have it, and how they are divided."""

    label: str
    has: np.ndarray
    folds: Folds


def labels(record: Captioned) -> set[str]:
    """Return the tags of an image, or the folder it is in."""
    folder = record.id.rpartition("/")[0]
    return set(record.tags) or ({folder} if folder else set())


def linear(
    train: np.ndarray, has: np.ndarray, judged: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """A linear support vector machine; both classes weigh the same."""
    classifier = LinearSVC(class_weight="balanced", max_iter=10_000, random_state=seed).fit(train, has)
    scores = classifier.decision_function(judged)
    return scores, scores > 0


def neighbors(
    train: np.ndarray, has: np.ndarray, judged: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The six nearest images by Euclidean distance vote; a tag needs more votes than its frequency."""
    count = min(NEIGHBORS, len(train))
    classifier = KNeighborsClassifier(count, algorithm="brute").fit(train, has)
    scores = classifier.predict_proba(judged)[:, 1] if has.any() else np.zeros(len(judged))
    return scores, scores > has.mean()


def dense(train: np.ndarray, has: np.ndarray, judged: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A net with one hidden layer; a tag needs a higher probability than its frequency."""
    classifier = MLPClassifier((HIDDEN,), alpha=0.01, max_iter=60, random_state=seed, early_stopping=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # sixty epochs are enough for a comparison
        classifier.fit(train, has)
    scores = classifier.predict_proba(judged)[:, 1]
    return scores, scores > has.mean()


def evaluate(features: np.ndarray, task: Task, classify: Classify, repeats: int) -> tuple[float, float]:
    """Return the balanced accuracy and the average precision in percent, as means over folds and repeats."""
    accuracies, precisions = [], []
    for seed in range(repeats):
        for train, judged in task.folds if repeats == 1 else _folds(task.has, len(task.folds), seed):
            scores, predicted = classify(features[train], task.has[train], features[judged], seed)
            accuracies.append(balanced_accuracy_score(task.has[judged], predicted))
            precisions.append(average_precision_score(task.has[judged], scores))
    return 100 * float(np.mean(accuracies)), 100 * float(np.mean(precisions))


def tasks(captioned: Sequence[Captioned], folds: int, split: bool) -> list[Task]:
    """Return the tags with enough images, the most frequent first.

    Args:
        captioned: the images, in the order of the features.
        folds: of the cross-validation; a tag needs as many images with it and as many without it.
        split: train on the training images and judge the test images instead.
    """
    counts = Counter(label for record in captioned for label in labels(record))
    found = []
    for label, _ in counts.most_common():
        has = np.array([label in labels(record) for record in captioned])
        if not split and min(has.sum(), (~has).sum()) >= folds:
            found.append(Task(label, has, _folds(has, folds, 0)))
        if split:
            train, test = (
                np.array([record.split == each for record in captioned]) for each in ("train", "test")
            )
            if all(has[part].any() and not has[part].all() for part in (train, test)):
                found.append(Task(label, has, [(np.flatnonzero(train), np.flatnonzero(test))]))
    return found


def columns(captioned: Sequence[Captioned], layers: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the embedding and single layers by name, with rows of length one (images, features).

    So the regularization has the same effect on all of them.
    """
    ids = [record.id for record in captioned]
    embeddings, activations = (
        Rows.open(Path("features") / name, name) for name in ("embeddings", "activations")
    )
    wanted = [layer.name for layer in activations.layers] if list(layers) == ["all"] else layers
    places = {name: activations.columns(name) for name in wanted or [activations.layers[-1].name]}
    yield FULL, normalize(embeddings.read(ids, np.float32))
    rows = activations.read(ids, np.float32)
    for name, place in places.items():
        yield name, normalize(rows[:, place])


def heat_map(names: Sequence[str], table: dict[str, list[float]]) -> str:
    """Return an SVG picture of a table: a row per tag, a column per layer, darker is better, ▪ best."""
    low, high = 50.0, max(max(values) for values in table.values())
    parts = [
        f'<text x="{LEFT + WIDTH * (number + 0.6):.0f}" y="{TOP - 6}" transform="rotate(-60 '
        f'{LEFT + WIDTH * (number + 0.6):.0f} {TOP - 6})">{escape(name)}</text>'
        for number, name in enumerate(names)
    ]
    for row, (label, values) in enumerate(table.items()):
        y = TOP + ROW * row
        parts.append(f'<text x="{LEFT - 6}" y="{y + 13}" text-anchor="end">{escape(label[:18])}</text>')
        for number, value in enumerate(values):
            shade = min(1.0, max(0.0, (value - low) / max(high - low, 1e-9)))
            x, title = LEFT + WIDTH * number, f"{label}, {names[number]}: {value:.1f}"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{WIDTH - 1}" height="{ROW - 1}" fill="#2f5fd0" '
                f'fill-opacity="{shade:.2f}"><title>{escape(title)}</title></rect>'
            )
            if value == max(values):
                parts.append(f'<text x="{x + WIDTH / 2}" y="{y + 13}" text-anchor="middle">▪</text>')
    width, height = LEFT + WIDTH * len(names) + 40, TOP + ROW * len(table) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11">\n' + "\n".join(parts) + "\n</svg>\n"
    )


@click.command()
@click.option(
    "--classifier", type=click.Choice(["linear", "neighbors", "dense"]), default="linear", show_default=True
)
@click.option(
    "--layer", "layers", multiple=True, help="A layer, or all; repeatable.  [default: the last one]"
)
@click.option(
    "--score",
    type=click.Choice(["accuracy", "precision"]),
    default="accuracy",
    show_default=True,
    help="Balanced accuracy, or average precision.",
)
@click.option("--tags", "most", default=0, show_default=True, help="Only the most frequent ones; 0: all.")
@click.option("--split", is_flag=True, help="Train on the split train and judge the split test.")
@click.option("--folds", default=5, show_default=True, help="Folds of the cross-validation.")
@click.option("--repeats", default=10, show_default=True, help="How often to split the images into folds.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Also write the table as CSV."
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also draw the table (SVG).")
def main(
    classifier: str,
    layers: tuple[str, ...],
    score: str,
    most: int,
    split: bool,
    folds: int,
    repeats: int,
    output: Path | None,
    plot: Path | None,
) -> None:
    """Compare features/embeddings with layers of features/activations, for every tag."""
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    chosen = tasks(captioned, folds, split)[: most or None]
    if not chosen:
        needed = (
            "in the splits train and test"
            if split
            else f"at least {folds} images with it and {folds} without it"
        )
        advice = "choose other splits" if split else "use fewer --folds"
        raise click.ClickException(f"no tag or folder has {needed}; {advice}")
    names: list[str] = []
    table: dict[str, list[float]] = {task.label: [] for task in chosen}
    for name, features in columns(captioned, layers):
        names.append(name)
        for task in chosen:
            found = evaluate(features, task, CLASSIFIERS[classifier], 1 if split else repeats)
            table[task.label].append(found[score == "precision"])
        print(f"{name} done", file=sys.stderr)
    click.echo(f"| tag | images | {' | '.join(names)} | best |")
    click.echo(f"|---|---:|{'---:|' * len(names)}---|")
    for task in chosen:
        click.echo(_line(task.label, str(int(task.has.sum())), names, table[task.label]))
    means = np.mean(list(table.values()), axis=0).tolist()
    click.echo(_line(f"mean of {len(table)}", "", names, means))
    wins = Counter(names[int(np.argmax(values))] for values in table.values())
    click.echo("best for: " + ", ".join(f"{name} {count}" for name, count in wins.most_common()))
    if output:
        with output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["tag", "images", *names])
            for task in chosen:
                writer.writerow([plain_cell(task.label), int(task.has.sum()), *table[task.label]])
    if plot:
        plot.write_text(heat_map(names, table), encoding="utf-8")


def _folds(has: np.ndarray, folds: int, seed: int) -> Folds:
    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(has, has))


def _line(label: str, images: str, names: Sequence[str], values: Sequence[float]) -> str:
    best = names[int(np.argmax(values))]
    return f"| {label} | {images} | {' | '.join(f'{value:.1f}' for value in values)} | {best} |"


CLASSIFIERS: dict[str, Classify] = {"dense": dense, "linear": linear, "neighbors": neighbors}

if __name__ == "__main__":
    main()
