"""A tagger from its settings and inputs: trained, or taken from the scratch folder."""

import numpy as np
import torch

from fne.core.processes import ALONE, Processes
from fne.core.variants import settings_of
from fne.describing.concepts import ConceptSource, concept_source
from fne.describing.model import Describer
from fne.describing.tagging.data import TaggingInputs
from fne.describing.tagging.settings import TrainTagger
from fne.describing.tagging.task import TaggingTask
from fne.describing.task import fresh_describer, objective_of
from fne.training.finished_runs import Finished
from fne.training.run import Job, train_task


def source_of(settings: TrainTagger) -> ConceptSource:
    """Return where the settings take the concepts from."""
    return concept_source(settings.concepts, settings_of(settings.concepts, settings.concept_sources))


def start_tagger(settings: TrainTagger, inputs: TaggingInputs) -> Describer:
    """Return a tagger with fresh weights."""
    shape = settings.shape(inputs.features, len(inputs.concepts.names), len(inputs.hints))
    labels = inputs.training.labels
    # Every image has one END.
    occurrences = np.array([len(labels), *labels.sum(axis=0)], dtype=float).clip(min=0.5)
    log_frequencies = np.log(occurrences / occurrences.sum())
    return fresh_describer(settings, shape, (inputs.mean, inputs.deviation), labels, log_frequencies)


def new_task(
    settings: TrainTagger, inputs: TaggingInputs, device: torch.device, processes: Processes = ALONE
) -> TaggingTask:
    """Return what is learned, with fresh weights."""
    return TaggingTask(
        start_tagger(settings, inputs).to(device),
        objective_of(settings),
        inputs.training,
        inputs.validation,
        seed=settings.seed,
        batch=settings.batch,
        processes=processes,
    )


def train_tagger(settings: TrainTagger, inputs: TaggingInputs, job: Job) -> tuple[Describer, Finished]:
    """Train a tagger; return it with the weights that were kept, and the points of its validation."""
    task = new_task(settings, inputs, job.device, job.processes)
    schedule = settings.schedule(settings.titles())
    return task.describer, train_task(task, settings, schedule, inputs.read, job)
