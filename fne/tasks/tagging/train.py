"""A tagger from its settings and inputs: trained, or taken from the scratch folder."""

from collections.abc import Callable
from pathlib import Path

import torch

from fne.core.processes import ALONE, Processes
from fne.core.variants import settings_of
from fne.losses.multilabel import MULTILABEL_LOSSES
from fne.models.describer import Describer
from fne.tasks.tagging.data import CONCEPT_SOURCES, ConceptSource, Inputs
from fne.tasks.tagging.model import start_tagger
from fne.tasks.tagging.settings import TrainTagger
from fne.tasks.tagging.task import TaggingTask
from fne.training.result_cache import Finished, training_key
from fne.training.run import train_or_load


def concept_source(settings: TrainTagger) -> ConceptSource:
    """Return where the settings take the concepts from."""
    own = settings_of(settings.concepts, settings.concept_sources)
    return CONCEPT_SOURCES[settings.concepts].make(own)


def train_tagger(
    settings: TrainTagger,
    inputs: Inputs,
    device: torch.device,
    scratch: Path,
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> tuple[Describer, Finished]:
    """Train a tagger; killed and run again, it goes on from the last checkpoint.

    Args:
        settings: the section of `params.yaml`.
        inputs: what it learns from and is judged by.
        device: what computes.
        scratch: where checkpoints and finished trainings are kept.
        stopping: asked after every step; True saves a checkpoint and raises `StoppedError`.
        processes: the processes that train together.

    Returns:
        the tagger with the weights that were kept, and the points of its validation.
    """
    describer = start_tagger(settings, inputs).to(device)
    phases = settings.phase_values()
    task = TaggingTask(
        describer,
        inputs.training,
        inputs.validation,
        learns=[phase["learns"] for phase in phases],
        recognizer_rates=[phase["recognizer_rate"] / phase["learning_rate"] for phase in phases],
        concept_loss=MULTILABEL_LOSSES.get(settings.concept_loss),
        concept_weight=settings.concept_weight,
        dropout=settings.dropout,
        seed=settings.seed,
        batch=settings.batch,
        processes=processes,
    )
    key = training_key(settings.applied(), inputs.lineage, device.type, processes.count)
    done = train_or_load(task, settings.schedule(settings.titles()), scratch, key, stopping, processes)
    return describer, done
