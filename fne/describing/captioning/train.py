"""A captioner from its settings and inputs: trained, or taken from the scratch folder."""

import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.core.variants import settings_of
from fne.describing.captioning.data import CaptioningInputs, Reading
from fne.describing.captioning.settings import SELECT, TrainCaptioner
from fne.describing.captioning.task import CaptioningTask
from fne.describing.model import Describer
from fne.describing.task import fresh_describer, objective_of
from fne.training.finished_runs import Finished
from fne.training.run import Job, train_task


def reading_of(settings: TrainCaptioner) -> Reading:
    """Return how captions are read, by the settings."""
    return Reading(
        settings.words,
        settings.min_count,
        settings.max_words,
        settings.max_length,
        settings.concepts,
        settings_of(settings.concepts, settings.concept_sources),
    )


def start_captioner(settings: TrainCaptioner, inputs: CaptioningInputs) -> Describer:
    """Return a captioner with fresh weights."""
    shape = settings.shape(inputs.features, len(inputs.concepts.names), inputs.words.outputs)
    moments = (inputs.mean, inputs.deviation)
    return fresh_describer(settings, shape, moments, inputs.training.labels, inputs.words.log_frequencies())


def new_task(
    settings: TrainCaptioner, inputs: CaptioningInputs, device: torch.device, processes: Processes = ALONE
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
    return CaptioningTask(
        start_captioner(settings, inputs).to(device),
        objective_of(settings),
        inputs.words,
        inputs.training,
        inputs.validation,
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
    settings: TrainCaptioner, inputs: CaptioningInputs, job: Job
) -> tuple[Describer, Finished]:
    """Train a captioner; return it with the weights that were kept, and the points of its validation."""
    task = new_task(settings, inputs, job.device, job.processes)
    schedule = settings.schedule(settings.titles())
    return task.describer, train_task(task, settings, schedule, inputs.read, job)
