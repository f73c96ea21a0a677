"""A captioner from its settings and inputs: trained, or taken from the scratch folder."""

from collections.abc import Callable
from pathlib import Path

import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.core.variants import settings_of
from fne.losses.multilabel import MULTILABEL_LOSSES
from fne.models.describer import Describer, new_describer
from fne.models.recognizer import log_odds
from fne.tasks.captioning.data import Inputs, Reading
from fne.tasks.captioning.settings import SELECT, TrainCaptioner
from fne.tasks.captioning.task import CaptioningTask
from fne.training.result_cache import Finished, training_key
from fne.training.run import train_or_load


def reading_of(settings: TrainCaptioner) -> Reading:
    """Return how the settings want captions to be read."""
    return Reading(
        settings.words,
        settings.min_count,
        settings.max_words,
        settings.max_length,
        settings.concepts,
        settings_of(settings.concepts, settings.concept_sources),
    )


def start_captioner(settings: TrainCaptioner, inputs: Inputs) -> Describer:
    """Return a captioner with fresh weights; with biases of frequencies it predicts those at first."""
    shape = settings.shape(inputs.features, len(inputs.concepts.names), inputs.words.outputs)
    captioner = new_describer(shape, settings.seed, settings.forget_bias)
    captioner.fit_rows(inputs.mean, inputs.deviation)
    if settings.output_bias == "frequency" and captioner.decoder is not None:
        captioner.decoder.start_biases(torch.from_numpy(inputs.words.log_frequencies()).float())
    if captioner.recognizer is not None and settings.concept_bias == "frequency":
        counts = inputs.training.labels.sum(axis=0)
        captioner.start_concepts(log_odds(counts, len(inputs.training)))
    return captioner


def new_task(
    settings: TrainCaptioner, inputs: Inputs, device: torch.device, processes: Processes = ALONE
) -> CaptioningTask:
    """Return what is learned, with fresh weights.

    Raises:
        InputError: if too few images are validated.
    """
    if settings.validation_images == 1:
        raise InputError(
            "params.yaml: train_captioner.validation_images is 1, but CIDEr-D needs several images; "
            "use 0 for all of them"
        )
    phases = settings.phase_values()
    return CaptioningTask(
        start_captioner(settings, inputs).to(device),
        inputs.words,
        inputs.training,
        inputs.validation,
        learns=[phase["learns"] for phase in phases],
        recognizer_rates=[phase["recognizer_rate"] / phase["learning_rate"] for phase in phases],
        concept_loss=MULTILABEL_LOSSES.get(settings.concept_loss),
        concept_weight=settings.concept_weight,
        dropout=settings.dropout,
        seed=settings.seed,
        batch=settings.batch,
        captions=settings.captions,
        max_length=settings.max_length,
        select=SELECT[settings.select],
        validation_images=settings.validation_images,
        validation_beam=settings.validation_beam,
        processes=processes,
    )


def train_captioner(
    settings: TrainCaptioner,
    inputs: Inputs,
    device: torch.device,
    scratch: Path,
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> tuple[Describer, Finished]:
    """Train a captioner; killed and run again, it goes on from the last checkpoint.

    Args:
        settings: the section of `params.yaml`.
        inputs: what it learns from and is judged by.
        device: what computes.
        scratch: where checkpoints and finished trainings are kept.
        stopping: asked after every step; True saves a checkpoint and raises `StoppedError`.
        processes: the processes that train together.

    Returns:
        the captioner with the weights that were kept, and the points of its validation.
    """
    task = new_task(settings, inputs, device, processes)
    key = training_key(settings.applied(), inputs.lineage, device.type, processes.count)
    done = train_or_load(task, settings.schedule(settings.titles()), scratch, key, stopping, processes)
    return task.captioner, done
