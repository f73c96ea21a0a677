"""Stage `train`: a joint space for images and captions."""

from functools import partial
from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.params import load_section
from fne.core.processes import joined
from fne.core.runtime import load_runtime
from fne.core.stopping import noting_termination
from fne.matching.checkpoints import open_checkpoints
from fne.matching.history import writing_history
from fne.matching.inputs import read_inputs
from fne.matching.model import new_matcher
from fne.matching.modelfile import write_model
from fne.matching.settings import Train, require_precision
from fne.matching.training import train


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
    inputs = read_inputs(embeddings, captions, tokens)
    matcher = new_matcher(settings.shape(inputs.features, inputs.words), settings.seed)
    key = {"train": settings.model_dump(), "made_from": inputs.lineage, "device": device.type}
    with (
        joined(device) as processes,
        open_checkpoints(runtime.scratch_folder(), key, processes.say, processes) as checkpoints,
        writing_history(history, processes) as tell,
        noting_termination(partial(processes.say, err=True)) as stopping,
    ):
        done = train(
            matcher.to(device),  # which of several GPUs is known only here
            settings.schedule(),
            inputs.training,
            inputs.validation,
            checkpoints,
            tell,
            processes.say,
            stopping,
            processes,
        )
        if processes.first:
            made_with = settings.model_dump() | {"best_epoch": done.best.epoch, "started": done.started}
            write_model(model, matcher, made_with, inputs.lineage)
            checkpoints.remove()
        processes.say(done.summary())


if __name__ == "__main__":
    start(main)
