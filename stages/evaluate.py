"""Stage `evaluate`: ranks and recalls in both directions."""

import json
from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.errors import InputError
from fne.core.params import load_section
from fne.ranking.similarities import SIMILARITIES
from fne.retrieval.evaluation import evaluate
from fne.retrieval.settings import Evaluate
from fne.store.arrays import write_arrays
from fne.store.catalog import in_split, read_captions
from fne.store.files import write_text
from fne.store.lineage import merge
from fne.store.rows import Rows


@click.command()
@click.argument("image_vectors", type=INPUT)
@click.argument("caption_vectors", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("ranks", type=OUTPUT)
@params_option
def main(
    image_vectors: Path, caption_vectors: Path, captions: Path, metrics: Path, ranks: Path, params: Path
) -> None:
    """Rank the images and CAPTIONS of a split; write METRICS and RANKS."""
    settings = load_section(params, "evaluate", Evaluate)
    images, sentences = (
        Rows.open(image_vectors, "image_vectors"),
        Rows.open(caption_vectors, "caption_vectors"),
    )
    captioned, catalog = read_captions(captions)
    lineage = merge(images.artifact, sentences.artifact, catalog)
    chosen = in_split(captioned, settings.split)
    if not chosen:
        splits = sorted({record.split for record in captioned if record.captions})
        raise InputError(
            f"params.yaml: evaluate.split is '{settings.split}', but the catalog has captions only in "
            f"{', '.join(splits)}; use `dvc exp run -S evaluate.split=val`"
        )
    similarity = SIMILARITIES[lineage["model"]["settings"]["similarity"]]
    evaluation = evaluate(chosen, images, sentences, similarity, settings.top)
    write_arrays(ranks, "ranks", evaluation.arrays(), settings.model_dump(), lineage)
    found = evaluation.metrics()
    write_text(metrics, json.dumps({settings.split: found}, indent=2) + "\n")
    click.echo(f"{settings.split}: {found['images']} images, sum of recalls {found['rsum']:.1f}")


if __name__ == "__main__":
    main()
