"""A tagger or a captioner from its settings and inputs: trained, or taken from the scratch folder."""

import signal
from functools import partial
from pathlib import Path

import torch

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes, joined
from fne.core.settings import Runtime
from fne.core.signals import graceful_stop
from fne.describing.concept_head import log_odds
from fne.describing.data import Examples
from fne.describing.inputs import Inputs, read_inputs
from fne.describing.model import DescribingModel, new_describing_model, shape_of
from fne.describing.model_file import Vocabulary, write_describing_model
from fne.describing.settings import TrainCaptioner, TrainTagger
from fne.describing.task import Batching, DescribingTask, Objective
from fne.describing.validation import CaptionValidation, TagValidation, Validation
from fne.training.finished_runs import Finished
from fne.training.history import write_history
from fne.training.run import Job, schedule_of, train_task

Settings = TrainTagger | TrainCaptioner


def train_and_write(
    settings: Settings, runtime: Runtime, embeddings: Path, captions: Path, model: Path, history: Path
) -> None:
    """Train a tagger or a captioner; write its file and the history of its training."""
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, settings.threads)
    inputs = read_inputs(embeddings, captions, settings)
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        for note in inputs.notes:
            processes.log(note)
        task, done = train_describing_model(
            settings, inputs, Job(device, runtime.scratch_folder(), stopping, processes)
        )
        if processes.first:
            made_with = settings.applied() | {"best_epoch": done.kept.epoch}
            digest = write_describing_model(model, task.model, inputs.vocabulary, made_with, inputs.lineage)
            write_history(history, done.points, digest, settings.kind)
            processes.log(task.validation.summary(done.kept))


def train_describing_model(settings: Settings, inputs: Inputs, job: Job) -> tuple[DescribingTask, Finished]:
    """Train a model; return its task, with the weights that were kept, and the points of validation."""
    task = new_task(settings, inputs, job.device, job.processes)
    return task, train_task(task, settings, schedule_of(settings, settings.titles()), inputs.read, job)


def new_task(
    settings: Settings, inputs: Inputs, device: torch.device, processes: Processes = ALONE
) -> DescribingTask:
    """Return what is learned, with fresh weights."""
    objective = Objective.of(settings)
    draw = settings.captions if isinstance(settings, TrainCaptioner) else "all"
    return DescribingTask(
        settings.kind,
        start_describing_model(settings, inputs).to(device),
        objective,
        inputs.training,
        Batching(settings.seed, settings.batch, draw),
        validation_of(settings, inputs.validation, inputs.vocabulary, objective),
        processes,
    )


def start_describing_model(settings: Settings, inputs: Inputs) -> DescribingModel:
    """Return a model with fresh weights; with biases of frequencies it predicts those at first."""
    vocabulary, labels = inputs.vocabulary, inputs.training.labels
    sizes = (inputs.features, len(vocabulary.concepts.names), vocabulary.outputs, len(vocabulary.user_tags))
    model = new_describing_model(shape_of(settings, *sizes), settings.seed, settings.forget_bias)
    model.fit_rows(*inputs.moments)
    if model.concept_head is not None and settings.concept_bias == "frequency":
        model.start_concepts(log_odds(labels.sum(axis=0), len(labels)))
    if model.decoder is not None and settings.output_bias == "frequency":
        model.decoder.start_biases(torch.from_numpy(vocabulary.log_frequencies()).float())
    return model


def validation_of(
    settings: Settings, examples: Examples, vocabulary: Vocabulary, objective: Objective
) -> Validation:
    """Return how a model is validated on some images."""
    words = vocabulary.words
    if words is None or isinstance(settings, TrainTagger):
        return TagValidation(examples)
    if settings.validation_images == 1:
        raise InputError(
            "params.yaml: train_captioner.validation_images is 1, but CIDEr-D needs several images; "
            "use 0 for all of them"
        )
    return CaptionValidation(examples, words, settings, objective.concept_loss)
