"""Stage `train`: a joint space for images and captions."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
from fne.core.params import load_section
from fne.core.runtime import load_runtime
from fne.matching.history import writing_history
from fne.matching.model import new_matcher
from fne.matching.modelfile import write_model
from fne.matching.pairs import Pairs, require_images
from fne.matching.settings import Train
from fne.matching.training import Schedule, train
from fne.store.catalog import in_split, read_captions, split_artifact
from fne.store.lineage import merge
from fne.store.rows import Rows
from fne.store.tokens import read_tokens


@click.command()
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("model", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@params_option
def main(embeddings: Path, captions: Path, tokens: Path, model: Path, history: Path, params: Path) -> None:
    """Train a MODEL to match EMBEDDINGS of images with the TOKENS of their CAPTIONS."""
    settings = load_section(params, "train", Train)
    device = prepare_device(load_runtime(params))
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    train_images = split_artifact(captions, captioned, "train")
    lineage = merge(rows.artifact, train_images, catalog, words.artifact)
    training, validation = (Pairs(in_split(captioned, split), rows, words) for split in ("train", "val"))
    require_images(training, "train", least=2, purpose="training")
    require_images(validation, "val", least=1, purpose="choosing the best epoch")
    shape = settings.shape(rows.features, words.artifact.settings["words"])
    matcher = new_matcher(shape, settings.seed).to(device)
    schedule = Schedule(settings.phases(), settings.batch, settings.clip, settings.seed)
    with writing_history(history) as tell:
        best = train(matcher, schedule, training, validation, tell)
    write_model(model, matcher, settings.model_dump() | {"best_epoch": best.number + 1}, lineage)
    rsum = best.validation.rsum
    click.echo(f"best epoch {best.number + 1} (phase {best.phase}): validation rsum {rsum:.1f}")


if __name__ == "__main__":
    main()
