"""Stage `train`: a joint space for images and captions."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
from fne.core.params import load_section
from fne.core.runtime import load_runtime
from fne.core.stopping import TERMINATED, noting_termination
from fne.matching.checkpoints import open_checkpoints
from fne.matching.history import writing_history
from fne.matching.model import new_matcher
from fne.matching.modelfile import write_model
from fne.matching.pairs import Pairs, require_images
from fne.matching.run import StoppedError
from fne.matching.settings import Train, require_precision
from fne.matching.training import train
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
    settings, runtime = load_section(params, "train", Train), load_runtime(params)
    device = prepare_device(runtime)
    require_precision(settings.precision, device)
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    lineage = merge(rows.artifact, split_artifact(captions, captioned, "train"), catalog, words.artifact)
    training, validation = (Pairs(in_split(captioned, split), rows, words) for split in ("train", "val"))
    require_images(training, "train", least=2, purpose="training")
    require_images(validation, "val", least=1, purpose="choosing the best epoch")
    shape = settings.shape(rows.features, words.artifact.settings["words"])
    matcher = new_matcher(shape, settings.seed).to(device)
    key = {"train": settings.model_dump(), "made_from": lineage, "device": device.type}
    with (
        open_checkpoints(runtime.scratch_folder(), key, click.echo) as checkpoints,
        writing_history(history) as tell,
        noting_termination() as stopping,
    ):
        try:
            done = train(
                matcher, settings.schedule(), training, validation, checkpoints, tell, click.echo, stopping
            )
        except StoppedError:
            click.echo("terminated; run it again to go on from here", err=True)
            raise SystemExit(TERMINATED) from None
        made_with = settings.model_dump() | {"best_epoch": done.best.epoch, "started": done.started}
        write_model(model, matcher, made_with, lineage)
        checkpoints.remove()
    click.echo(done.summary())


if __name__ == "__main__":
    main()
