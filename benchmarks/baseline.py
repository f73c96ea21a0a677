"""`python -m benchmarks.baseline`: what closed-form alignment reaches with given image features.

A trained model should beat these figures. Every row is fitted on the training images, with settings chosen on
training images that are held out, and scored on the evaluation images once.

    python -m benchmarks.baseline vgg16.h5 inception.npz --captions captions.token.txt \
        --train trainImages.txt --evaluate devImages.txt
"""

import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import torch

from benchmarks.drawn import draw_dataset, draw_features
from fne.evaluation.metrics.ranks import rank
from fne.evaluation.metrics.recall import sum_of_recalls, summarize
from fne.features.embeddings import EMBEDDINGS, Choices
from fne.features.import_features import ArrayNames, import_rows
from fne.features.join import join_stores
from fne.features.standardize import fit as fit_statistics
from fne.features.write_embeddings import write_embeddings
from fne.matching.closed_form import METHODS, Alignment, CaptionedImages, fit
from fne.matching.numpy_model import tfidf
from fne.matching.settings import ClosedForm
from fne.matching.similarities import cosine
from fne.store.rows import Rows

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
# The name of a row, the kind of embedding and the scaling of its rows.
KINDS = [
    ("last layer, length one", "layer", "unit"),
    ("all, length one", "raw", "unit"),
    ("all, z-scores", "zscore", "none"),
    ("all, ternary (FNE)", "fne", "none"),
    ("all, each layer length one", "blocks", "none"),
]


def read_captions(captions: Path, ids: Sequence[str], words: dict[str, int]) -> CaptionedImages:
    """Return the captions of images from a file with lines `ID#NUMBER<tab>CAPTION`, as word numbers."""
    found: dict[str, list[np.ndarray]] = {}
    for image, caption in _lines(captions):
        found.setdefault(image, []).append(np.array([words.get(word, 0) for word in _words(caption)]))
    return CaptionedImages.of(list(ids), [found[image] for image in ids])


def vocabulary(captions: Path, ids: Sequence[str]) -> dict[str, int]:
    """Return the words of the captions of some images, numbered from 1."""
    wanted, words = set(ids), dict[str, int]()
    for image, caption in _lines(captions):
        if image in wanted:
            for word in _words(caption):
                words.setdefault(word, len(words) + 1)
    return words


def score(found: Alignment, rows: Rows, images: CaptionedImages) -> float:
    """Return the sum of recalls of an alignment on some images."""
    weights = {name.removeprefix("text_encoder."): value.numpy() for name, value in found.state.items()}
    table, offsets = weights["words.weight"], images.bags.offsets
    pictures = (
        rows.read(images.ids).astype(np.float32) @ weights["image_head.weight"].T + weights["image_head.bias"]
    )
    sentences = np.stack(
        [tfidf(table[images.bags.words[start:stop]], weights) for start, stop in pairwise(offsets)]
    )
    vectors = (torch.nn.functional.normalize(torch.from_numpy(each), dim=1) for each in (pictures, sentences))
    ranking = rank(*vectors, torch.from_numpy(images.owners), cosine, top=0)
    return sum_of_recalls(summarize(ranking.image_ranks.numpy()), summarize(ranking.caption_ranks.numpy()))


@click.command()
@click.argument("features", nargs=-1, required=True, type=FILE)
@click.option("--captions", required=True, type=FILE, help="Lines ID#NUMBER<tab>CAPTION.")
@click.option("--train", required=True, type=FILE, help="Training ids, one per line.")
@click.option("--evaluate", required=True, type=FILE, help="Ids to score, one per line.")
@click.option("--method", type=click.Choice(list(METHODS)), default="cca", show_default=True)
@click.option("--dim", default=512, show_default=True)
@click.option("--text-dim", default=1500, show_default=True)
@click.option("--image-regularization", multiple=True, default=[0.1, 0.5, 2.0], show_default=True)
@click.option("--text-regularization", multiple=True, default=[0.3, 1.0], show_default=True)
@click.option("--holdout", default=1000, show_default=True, help="Training images that choose settings.")
@click.option("--power", multiple=True, default=[1.0, 1.5, 2.0], show_default=True)
def main(
    features: tuple[Path, ...],
    captions: Path,
    train: Path,
    evaluate: Path,
    method: str,
    dim: int,
    text_dim: int,
    image_regularization: tuple[float, ...],
    text_regularization: tuple[float, ...],
    power: tuple[float, ...],
    holdout: int,
) -> None:
    """Print the baseline of each file of FEATURES, and of all of them together."""
    settings = ClosedForm(
        dim=dim,
        text="tfidf",
        text_dim=text_dim,
        min_count=3,
        image_regularization=list(image_regularization),
        text_regularization=list(text_regularization),
        power=list(power),
        choose_on="train",
        holdout=holdout,
        seed=0,
    )
    train_ids, scored_ids = train.read_text().split(), evaluate.read_text().split()
    words = vocabulary(captions, train_ids)
    training, scored = (read_captions(captions, ids, words) for ids in (train_ids, scored_ids))
    click.echo(f"{'features':<52} {'values':>6} {'held out':>8} {'scored':>7} {'seconds':>7}  chosen")
    with tempfile.TemporaryDirectory() as folder:
        for title, rows in _embeddings(features, Path(folder), train_ids):
            start = time.perf_counter()
            found = fit(rows, training, None, len(words) + 1, method, settings)
            seconds = time.perf_counter() - start
            chosen = found.chosen
            click.echo(
                f"{title:<52} {rows.features:>6} {chosen.rsum:>8.1f} {score(found, rows, scored):>7.1f} "
                f"{seconds:>7.1f}  {chosen.image_regularization:g} {chosen.text_regularization:g} "
                f"{chosen.power:g}"
            )


def _embeddings(
    features: Sequence[Path], folder: Path, train_ids: Sequence[str]
) -> Iterator[tuple[str, Rows]]:
    """Yield the embeddings of each file, and of all of them joined, made by the functions of the pipeline."""
    stores = []
    for file in features:
        stores.append(folder / file.stem)
        import_rows(file, stores[-1], ArrayNames())
    if len(stores) > 1:
        join_stores(stores, folder / "joined", common=True)
        stores.append(folder / "joined")
    for path in stores:
        activations = Rows.open(path)
        statistics = fit_statistics(activations, train_ids)
        single = len(activations.layers) == 1
        for title, kind, rows in KINDS:
            joined_kind = path.name == "joined" and kind in ("layer", "raw")
            if joined_kind or (single and kind in ("raw", "blocks")):
                continue  # the same as another row, or of little interest
            choices = Choices(-0.25, 0.15, activations.layers[-1].name, rows=rows)
            embedding = EMBEDDINGS[kind](activations, statistics, choices)
            write_embeddings(folder / "embeddings", activations, embedding, {"kind": kind}, {})
            yield f"{path.name}: {title}", Rows.open(folder / "embeddings")


def _lines(captions: Path) -> Iterator[tuple[str, str]]:
    for line in captions.read_text(encoding="utf-8").splitlines():
        name, caption = line.split("\t", 1)
        yield name.rpartition("#")[0], caption


def _words(caption: str) -> list[str]:
    return re.findall(r"[a-z]+", caption.lower())


def tiny(folder: Path) -> None:
    """Run with little data."""
    dataset = draw_dataset(folder, images=40)
    images = json.loads((dataset / "dataset.json").read_text())["images"]
    lines = [
        f"{image['filename']}#{number}\t{sentence['raw']}\n"
        for image in images
        for number, sentence in enumerate(image["sentences"])
    ]
    (folder / "captions.txt").write_text("".join(lines))
    for split in ("train", "val"):
        ids = [image["filename"] for image in images if image["split"] == split]
        (folder / f"{split}.txt").write_text("\n".join(ids))
    options = {"captions": "captions", "train": "train", "evaluate": "val"}
    files = [word for name, file in options.items() for word in (f"--{name}", str(folder / f"{file}.txt"))]
    few = ["--dim", "4", "--text-dim", "8", "--holdout", "5"]
    main.main([str(draw_features(dataset)), *files, *few], standalone_mode=False)


if __name__ == "__main__":
    main()
