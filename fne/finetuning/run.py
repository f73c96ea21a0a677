"""The training of the image network with any model: what it starts from, its announcement, and the run.

Fine-tuning is the training of a task with rows from the network instead of a store. A module per kind of
model says what is learned: `fne.finetuning.matching` and `fne.finetuning.describing`.
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fne.core.device import explain_out_of_memory, free_memory, prepare_device, synchronize
from fne.core.errors import InputError
from fne.core.processes import Processes, joined
from fne.core.settings import Runtime
from fne.core.signals import graceful_stop
from fne.core.terminal import format_bytes, format_time
from fne.extraction.computer import GPU_BATCH
from fne.extraction.forward_pass import build_network
from fne.extraction.networks import find_backbone
from fne.extraction.preprocess import resize_for
from fne.extraction.settings import TORCHVISION, ExtractorSettings, InputFormat, is_timm
from fne.extraction.weights import load_weights
from fne.features.standardize import Statistics, read_statistics
from fne.finetuning.data import Crop, CropChoices, RandomCrops
from fne.finetuning.network_rows import NetworkRows, Photos
from fne.finetuning.settings import ALL, PIPELINES, WITH_GRADIENT, Finetune, TuneDescribing, kind_fault
from fne.finetuning.tuned_network import SCALING, TunedNetwork, layers_read, rows_of, trained_taps
from fne.store.artifact import Artifact, merge
from fne.store.catalog import Image, read_images
from fne.store.layout import Layer
from fne.training.finished_runs import FOLDER, Finished, kept_path, training_key
from fne.training.loop import Schedule, step_generator
from fne.training.run import Job, train_or_load
from fne.training.task import Task

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Places:
    """The files that every fine-tuning reads, and the folder of the image files."""

    images: Path
    weights: Path
    statistics: Path  # those of the activations, for z-scores
    root: Path


@dataclass(frozen=True)
class Start:
    """What computed the rows that a model was trained on, and the images to train it with."""

    model: Artifact
    catalog: Artifact
    images: Mapping[str, Image]  # by id
    places: Places

    @property
    def extraction(self) -> dict[str, Any]:
        """The settings of the extraction that the model was trained on."""
        found: dict[str, Any] = self.model.lineage["activations"]["settings"]
        return found

    @property
    def embedding(self) -> dict[str, Any]:
        """The settings of the embedding that the model was trained on."""
        found: dict[str, Any] = self.model.lineage["embeddings"]["settings"]
        return found

    @property
    def feeding(self) -> InputFormat:
        """How the network expects images."""
        found = self.extraction.get("input")
        return TORCHVISION if found is None else InputFormat.model_validate(found)


def open_start(model: Artifact, places: Places) -> Start:
    """Open the images; refuse a model that no network can be trained for."""
    files, catalog = read_images(places.images)
    recorded = model.lineage.get("activations", {}).get("settings", {})
    if not files:
        raise InputError(
            "params.yaml: catalog.images is 'none', but fine-tuning needs the image files; name their folder"
        )
    if "weights" not in model.lineage or not ExtractorSettings.model_fields.keys() <= recorded.keys():
        raise InputError(
            f"{model.path} was trained on imported features: there is no network to train; set embed.source "
            "to features/activations"
        )
    kind = model.lineage["embeddings"]["settings"]["kind"]
    if kind not in WITH_GRADIENT:
        raise InputError(f"params.yaml: fine-tuning {kind_fault(kind)}")
    return Start(model, catalog, {each.id: each for each in files}, places)


def open_rows(
    settings: Finetune | TuneDescribing,
    section: str,
    start: Start,
    runtime: Runtime,
    device: torch.device,
    own_crops: Callable[[int], list[list[Crop]]],
    rates: Mapping[str, float],
) -> NetworkRows:
    """Return the rows that the network of a model computes, with gradients from random crops.

    Args:
        own_crops: the crops that this process needs for each batch of an epoch.
        rates: factors on the learning rate, by the kind of weights in the network.
    """
    extraction, feeding = start.extraction, start.feeding
    part = min(images_at_once(runtime, device), settings.batch)
    network = open_network(settings.first, section, start, part, device)
    side = find_backbone(extraction["backbone"]).side
    resize = resize_for(extraction["resize"], feeding)
    places = start.places
    photos = Photos(places.images, start.images, places.root, resize, feeding, runtime.workers, side)
    choices = CropChoices(settings.crop_share, settings.crop_aspect, settings.mirror, feeding.filter, side)
    crops = RandomCrops(start.images, places.root, settings.seed, choices)
    return NetworkRows(network, rates, photos, crops, own_crops)


def open_network(first: str, section: str, start: Start, part: int, device: torch.device) -> TunedNetwork:
    """Return the network that made the rows of a model, `part` images of which are computed at once."""
    extraction, embedding = start.extraction, start.embedding
    backbone = extraction["backbone"]
    weights = load_weights(start.places.weights, backbone, start.feeding)
    merge(start.model, weights.artifact)

    # timm builds a network from all its weights.
    besides, ordinary = dict(weights.state) if is_timm(backbone) else {}, None
    listed, kept = layers_read(weights, extraction, embedding)
    if embedding["kind"] == "zscore":
        ordinary = _ordinary(start, listed, kept)
        besides |= {name: torch.from_numpy(getattr(ordinary, key)) for key, name in SCALING.items()}
    taps = trained_taps(backbone, kept[-1], first, section)
    network = build_network(backbone, weights, device, extraction["activations"], kept)
    transform = rows_of(embedding, [each.features for each in network.layers], ordinary)
    entrance = find_backbone(backbone).taps[0].weighted
    return TunedNetwork(network, taps, transform, part, entrance, besides)


def _ordinary(start: Start, layers: Sequence[Layer], kept: Sequence[str]) -> Statistics:
    """Return the statistics of the kept layers."""
    found, artifact = read_statistics(start.places.statistics)
    merge(start.model, artifact)
    return found.only(np.repeat([each.name in kept for each in layers], [each.features for each in layers]))


@dataclass(frozen=True)
class Plan:
    """A fine-tuning that can start."""

    task: Task[Any]
    rows: NetworkRows
    schedule: Schedule
    made_with: Mapping[str, Any]  # with the digests of what it reads, what its result is kept by
    read: Mapping[str, str]
    images: int  # that pass through the network per epoch
    batch: int  # the most images of a step
    # Parts of a validation, and how many times as long the whole takes.
    validation: Sequence[tuple[Callable[[], object], float]]


def run_plan(
    settings: Finetune | TuneDescribing,
    runtime: Runtime,
    prepare: Callable[[torch.device, Processes], Plan],
    write: Callable[[Plan, Finished], None],
) -> None:
    """Announce and make a fine-tuning, or take the finished one; the first process writes."""
    device = prepare_device(runtime, settings.threads)
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        plan = prepare(device, processes)
        # Gradients are added up part by part.
        made_with = {**plan.made_with, "images_at_once": plan.rows.network.part}
        key = training_key(made_with, plan.read, device.type, processes.count)
        job = Job(device, runtime.scratch_folder(), stopping, processes)
        try:
            if not processes.any(kept_path(job.scratch, FOLDER, key).exists()):
                with explain_out_of_memory(plan.task.memory_hint):
                    cost = seconds_of(plan)
                processes.log(announcement(plan, settings, cost))
            done = train_or_load(plan.task, plan.schedule, key, job)
        finally:
            plan.rows.close()
        if processes.first:
            write(plan, done)


def memory_hint(section: str) -> str:
    """Return what to lower when memory runs out."""
    return f"lower runtime.batch or {section}.batch, or train fewer layers with {section}.first"


def announcement(plan: Plan, settings: Finetune | TuneDescribing, seconds: float) -> str:
    """Return what the training costs in time and memory, and how to pay less.

    The memory is measured with blank images.
    """
    network, task = plan.rows.network, plan.task
    blank = torch.zeros((network.part, 3, plan.rows.side, plan.rows.side), device=network.device)
    groups: dict[int, int] = {}
    for number in range(len(plan.schedule.phases)):
        task.start_phase(number)
        groups |= {id(own): own.numel() for group in task.parameter_groups() for own in group.parameters}
    task.start_phase(0)
    weights = FLOAT * sum(groups.values())
    copies = 1 + (plan.schedule.keep == "best")  # and their momentum
    # Gradients are in memory, but not in a checkpoint.
    memory = network.activation_bytes(blank, plan.batch) + weights * (2 + copies)
    epochs = sum(phase.epochs for phase in plan.schedule.phases)
    section, last = task.section, last_block(network.trained_layers)
    first = f"-S {PIPELINES[section]}/params.yaml:++{section}.first={last} trains the last layers only"
    layers = first if settings.first == ALL else ""
    free = format_bytes(free_memory(network.device))
    return (
        f"fine-tuning from layer '{settings.first}': {plan.images} images per epoch, {epochs} epochs, about "
        f"{format_time(seconds)} on {network.device.type}; memory {format_bytes(memory)} with "
        f"{network.part} images at once (runtime.batch), {free} are free; a checkpoint has "
        f"{format_bytes(weights * (1 + copies))}; cheaper: {layers or f'fewer {section}.epochs'}"
    )


def images_at_once(runtime: Runtime, device: torch.device) -> int:
    """Return how many images pass through the network at once, at most the batch."""
    return runtime.batch or (GPU_BATCH if device.type == "cuda" else torch.get_num_threads())


def seconds_of(plan: Plan) -> float:
    """Return how long all steps and validations take, from two steps of each phase and part of a validation.

    They are those of the training, from the images that are read to the gradients. No weight changes.
    """
    task, device = plan.task, plan.rows.network.device
    per_validation = sum(times * _seconds(work, device) for work, times in plan.validation)
    # The weights before the first step are validated, too.
    total, epoch = per_validation, 0
    for number, phase in enumerate(plan.schedule.phases):
        task.start_phase(number)
        steps, per_step = phase.steps(task.steps()), 0.0
        for update, batch in enumerate([*task.batches(epoch), *task.batches(epoch + 1)][:2]):
            # The first step allocates memory and starts the processes that read.
            per_step = _seconds(partial(_gradients, task, batch, update), device)
        every = plan.schedule.validate_every or task.steps()
        total += steps * per_step + -(-steps // every) * per_validation
        epoch += phase.epochs
    plan.rows.close()
    task.start_phase(0)
    return total


def _gradients(task: Task[Any], batch: Any, number: int) -> None:
    task.trained.eval()  # the statistics of batch normalization stay
    weights = [each for group in task.parameter_groups() for each in group.parameters]
    loss = task.loss(batch, step_generator(0, number))
    torch.autograd.grad(loss.total, weights, allow_unused=True)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def last_block(layers: Sequence[str]) -> str:
    """Return the first convolution of the last block of a network.

    Example:
        >>> last_block(["conv4_3", "conv5_1", "conv5_2", "fc6"]), last_block(["conv1", "conv2", "fc6"])
        ('conv5_1', 'conv2')
    """
    convolutions = [each for each in layers if each.startswith("conv")] or list(layers[-1:])
    block = convolutions[-1].partition("_")[0]
    return next(each for each in convolutions if each.partition("_")[0] == block)
