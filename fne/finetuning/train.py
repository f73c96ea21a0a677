"""Fine-tuning from its settings and inputs to its result."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image as PictureImage
from torch import Tensor

from fne.core.device import free_memory, synchronize
from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.params import Runtime
from fne.core.processes import ALONE, Processes
from fne.core.terminal import format_bytes, format_time
from fne.extraction.extractor import ExtractorSettings
from fne.extraction.forward_pass import build_network
from fne.extraction.networks import BACKBONES
from fne.extraction.preprocess import CROP, CROPS, TORCHVISION, InputFormat, resize_for
from fne.extraction.read_images import ImageFiles, read_ahead
from fne.extraction.run import GPU_BATCH
from fne.extraction.weights import load_weights
from fne.finetuning.data import Captions, CropChoices, RandomCrops
from fne.finetuning.settings import ALL, Finetune
from fne.finetuning.task import FinetuningTask, Images, Objective, Rates, network_rates
from fne.finetuning.tuned_network import TunedNetwork, trained_taps
from fne.matching.classifier_file import ClassifierFile, read_classifier
from fne.matching.instance_loss import FLOAT, Classes, Instance
from fne.matching.model import Matcher
from fne.matching.model_file import read_model
from fne.store.arrays import arrays_digest
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import Image, captioned_in, read_captions, read_images, split_artifact
from fne.store.lineage import recorded_lineage
from fne.text.caption_vectors import has_caption_vectors
from fne.text.tokens import Tokens, read_tokens
from fne.training.finished_runs import Finished, training_key
from fne.training.loop import Schedule
from fne.training.optimizers import SgdNesterov, sgd_nesterov
from fne.training.run import train_or_load

# The kinds of embedding that have a gradient: a single layer, as it is or scaled to length one.
WITH_GRADIENT = ("layer", "plain")
OFF = "set finetune.epochs to 0"


@dataclass(frozen=True)
class Places:
    """The files that fine-tuning reads, and the folder of the image files."""

    model: Path
    classifier: Path
    images: Path
    captions: Path
    tokens: Path
    weights: Path
    root: Path


@dataclass(frozen=True)
class TuningInputs:
    """What fine-tuning starts from.

    Attributes:
        matcher: the model of the stage `train`.
        model: where it comes from.
        classifier: the classifier of its instance loss.
        images: the image files of the catalog, by id.
        training: the captions of the training images.
        validation: those of the validation images.
        places: the files.
        lineage: where all of it comes from.
    """

    matcher: Matcher
    model: Artifact
    classifier: ClassifierFile
    images: Mapping[str, Image]
    training: Captions
    validation: Captions
    places: Places
    lineage: Lineage

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

    def read(self) -> dict[str, str]:
        """Return the digests of what training reads, by which its result is kept."""
        weights = {name: value.cpu().numpy() for name, value in self.matcher.state_dict().items()}
        classifier = {"weight": self.classifier.weight, "labels": self.classifier.labels}
        if self.classifier.bias is not None:
            classifier["bias"] = self.classifier.bias
        made_with = [self.model.settings, self.extraction, self.embedding]
        return {
            "model": arrays_digest(weights),
            "classifier": arrays_digest(classifier),
            "network": self.model.lineage["weights"]["digest"],
            "settings": text_digest(json.dumps(made_with, sort_keys=True)),
            "train": self.training.digest(self.images),
            "val": self.validation.digest(self.images),
        }


def read_inputs(places: Places, epochs: Sequence[int]) -> TuningInputs:
    """Open what fine-tuning starts from, for some epochs of each phase.

    Raises:
        InputError: if the artifacts do not belong together, or if there is no network to train.
    """
    matcher, origin = read_model(places.model)
    files, catalog = read_images(places.images)
    refuse_without_network(origin, bool(files), epochs)
    found = read_classifier(places.classifier)
    words: Tokens = read_tokens(places.tokens)
    captioned, sentences = read_captions(places.captions)
    split = split_artifact(places.captions, captioned, "train")
    lineage = recorded_lineage(origin, found.artifact, catalog, sentences, words.artifact, split)
    training, validation = (Captions(captioned_in(captioned, name), words) for name in ("train", "val"))
    by_id = {each.id: each for each in files}
    missing = [each for each in [*training.image_ids, *validation.image_ids] if each not in by_id]
    if missing:
        raise InputError(f"{places.images}: has no image file of {missing[0]!r}; run `dvc repro`")
    for name, present, least in (("train", training, 4), ("val", validation, 1)):
        if len(present.captioned) < least:
            raise InputError(
                f"the catalog has {len(present.captioned)} captioned images in split '{name}'; fine-tuning "
                f"needs at least {least}; see `catalog` in params.yaml"
            )
    return TuningInputs(matcher, origin, found, by_id, training, validation, places, lineage)


def refuse_without_network(model: Artifact, has_images: bool, epochs: Sequence[int]) -> None:
    """Refuse a model that no network can be trained for.

    Raises:
        InputError: saying what to change.
    """
    said = f"params.yaml: finetune.epochs is {_text(epochs)}"
    recorded = model.lineage.get("activations", {}).get("settings", {})
    if not has_images:
        raise InputError(
            f"{said}, but the catalog has no image files: catalog.images is 'none'; name their folder, or "
            f"{OFF}"
        )
    if "weights" not in model.lineage or not ExtractorSettings.model_fields.keys() <= recorded.keys():
        raise InputError(
            f"{said}, but {model.path} was trained on imported features: there is no network to train; set "
            f"embed.source to features/activations, or {OFF}"
        )
    if has_caption_vectors(model.lineage):
        raise InputError(
            f"{said}, but {model.path} was trained on imported vectors of captions: there is no text encoder "
            f"to train; set tokenize.vectors to a file of word vectors, or {OFF}"
        )
    kind = model.lineage["embeddings"]["settings"]["kind"]
    if kind not in WITH_GRADIENT:
        raise InputError(f"{said}, but {kind_fault(kind)}; use one of these kinds, or {OFF}")


def kind_fault(kind: str) -> str:
    """Return why an embedding cannot be tuned."""
    allowed = " or ".join(repr(each) for each in WITH_GRADIENT)
    reason = "has no gradient" if kind in ("fne", "zscore") else "is not that of a single layer"
    return f"needs embed.kind {allowed}: an embedding of kind '{kind}' {reason}"


def build_task(
    settings: Finetune,
    inputs: TuningInputs,
    runtime: Runtime,
    device: torch.device,
    processes: Processes = ALONE,
) -> FinetuningTask:
    """Return the task, with the network, the model and the classifier on their device.

    Raises:
        InputError: if the settings do not fit the network or the model.
    """
    root = inputs.places.root
    extraction, embedding, model = inputs.extraction, inputs.embedding, inputs.model.settings
    backbone, layer = extraction["backbone"], embedding["layer"]
    taps = trained_taps(backbone, layer, settings.first)
    feeding = InputFormat.model_validate(extraction["input"]) if "input" in extraction else TORCHVISION
    weights = load_weights(inputs.places.weights, backbone, feeding)
    merge(inputs.model, weights.artifact)
    network = build_network(backbone, weights, device, extraction["activations"], [layer])
    part = images_at_once(runtime, device)
    entrance = BACKBONES[backbone].taps[0].weighted
    unit = embedding.get("rows") == "unit"
    tuned = TunedNetwork(network, taps, unit, min(part, settings.batch), entrance)
    matcher = inputs.matcher.to(device)
    if model.get("words") == "fixed":
        matcher.text_encoder.get_submodule("words").requires_grad_(False)
    resize = resize_for(extraction["resize"], feeding)
    choices = CropChoices(settings.crop_share, settings.crop_aspect, settings.mirror, feeding.filter)
    training_images = {each: inputs.images[each] for each in inputs.training.image_ids}

    def center_crop(image: PictureImage) -> Tensor:
        return CROPS["center"](resize(image))[0]

    def views(ids: Sequence[str]) -> Iterator[Tensor]:
        files = ImageFiles([inputs.images[each] for each in ids], root, center_crop)
        return read_ahead(files, range(len(ids)), runtime.workers, device.type == "cuda")

    return FinetuningTask(
        tuned,
        matcher,
        _classes(settings, inputs, device),
        Objective(
            settings.margin, settings.rank_weight, settings.image_class_weight, settings.text_class_weight
        ),
        _rates(settings, model),
        inputs.training,
        inputs.validation,
        Images(RandomCrops(training_images, root, settings.seed, choices), views, feeding, runtime.workers),
        settings.seed,
        settings.batch,
        settings.candidates,
        bool(model.get("rectified")),
        processes,
    )


def finetune(
    task: FinetuningTask,
    settings: Finetune,
    inputs: TuningInputs,
    device: torch.device,
    scratch: Path,
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> Finished:
    """Train the network and the model, or load the finished training of the same settings and inputs."""
    own = SgdNesterov(momentum=settings.momentum, weight_decay=settings.weight_decay)
    schedule = Schedule(
        settings.phases(),
        settings.seed,
        partial(sgd_nesterov, settings=own),
        clip=0.0,
        clip_by="global",
        validate_every=0,
        keep=settings.keep,
        validate_start=True,
    )
    # Gradients are added up part by part.
    made_with = {"task": "finetune", **settings.model_dump(), "images_at_once": task.network.part}
    key = training_key(made_with, inputs.read(), device.type, processes.count)
    try:
        return train_or_load(task, schedule, scratch, key, stopping, processes)
    finally:
        task.close()


def announcement(task: FinetuningTask, settings: Finetune, backbone: str, device: torch.device) -> str:
    """Return what the training costs in time and memory, measured with blank images, and how to pay less."""
    network, phases = task.network, settings.phases()
    seconds = seconds_per_image(network, device)
    blank = torch.zeros((network.part, 3, CROP, CROP), device=device)
    weights = FLOAT * sum(each.numel() for group in task.parameter_groups() for each in group.parameters)
    copies = 1 + (settings.keep == "best")  # and their momentum
    # Gradients are in memory, but not in a checkpoint.
    memory = network.activation_bytes(blank, settings.batch) + weights * (2 + copies)
    epochs, images = sum(phase.epochs for phase in phases), len(task.batches(0)[0]) * task.steps()
    last = last_block([tap.layer for tap in BACKBONES[backbone].taps])
    cheaper = f"-S finetune.first={last} trains the last layers only" if settings.first == ALL else OFF
    return (
        f"fine-tuning from layer '{settings.first}': {images} images per epoch, {epochs} epochs, about "
        f"{format_time(seconds * images * epochs)} on {device.type}; memory {format_bytes(memory)} with "
        f"{network.part} images at once (runtime.batch), {format_bytes(free_memory(device))} are free; a "
        f"checkpoint has {format_bytes(weights * (1 + copies))}; cheaper: {cheaper}"
    )


def images_at_once(runtime: Runtime, device: torch.device) -> int:
    """Return how many images pass through the network at once, at most the batch."""
    return runtime.batch or (GPU_BATCH if device.type == "cuda" else torch.get_num_threads())


def seconds_per_image(network: TunedNetwork, device: torch.device) -> float:
    """Return how long the network takes per image of a step, measured with blank images."""
    tuned = [each for own in network.trained_kinds().values() for each in own]
    blank = torch.zeros((network.part, 3, CROP, CROP), device=device)
    started = 0.0
    for _ in range(2):  # the first pass allocates memory
        synchronize(device)
        started = time.perf_counter()
        torch.autograd.grad(network(blank).sum(), tuned, allow_unused=True)
        synchronize(device)
    return (time.perf_counter() - started) / network.part


def last_block(layers: Sequence[str]) -> str:
    """Return the first convolution of the last block of a network.

    Example:
        >>> last_block(["conv4_3", "conv5_1", "conv5_2", "fc6"]), last_block(["conv1", "conv2", "fc6"])
        ('conv5_1', 'conv2')
    """
    convolutions = [each for each in layers if each.startswith("conv")]
    block = convolutions[-1].partition("_")[0]
    return next(each for each in convolutions if each.partition("_")[0] == block)


def _classes(settings: Finetune, inputs: TuningInputs, device: torch.device) -> Classes | None:
    """Return the classifier that the stage `train` ended with, if it is used."""
    if not settings.has_instance_loss:
        return None
    file = inputs.classifier
    if not len(file.weight):
        raise InputError(
            f"params.yaml: finetune.image_class_weight is {settings.image_class_weight} and "
            f"finetune.text_class_weight is {settings.text_class_weight}, but {file.artifact.path} has no "
            "classes: the stage `train` had no instance loss; set both to 0, or use "
            "-S train.image_class_weight=1.0"
        )
    dropout = inputs.model.settings["terms"]["instance"]["dropout"]
    count, dim = file.weight.shape
    loss = Instance(count, dim, file.bias is not None, dropout)
    state = {"weight": file.weight} | ({} if file.bias is None else {"bias": file.bias})
    loss.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    ids = sorted(inputs.training.image_ids)
    if len(ids) != len(file.labels):
        raise InputError(
            f"{file.artifact.path}: has classes of {len(file.labels)} training images, but the catalog has "
            f"{len(ids)}; run `dvc repro train`"
        )
    return Classes(loss.to(device), dict(zip(ids, file.labels.tolist(), strict=True)))


def _rates(settings: Finetune, model: Mapping[str, Any]) -> Rates:
    """Return the factors on the learning rate; those of the model are of its last phase in `train`."""
    own = network_rates(
        settings.cnn_rate, settings.cnn_bias_rate, settings.cnn_gain_rate, settings.cnn_first_rate
    )
    words, gains, classifier = (
        _last(model.get(key, 1.0)) for key in ("words_rate", "gain_rate", "classifier_rate")
    )
    bias = model.get("terms", {}).get("instance", {}).get("bias_rate", 1.0)
    return Rates(own, words, gains, classifier, bias)


def _last(value: Any) -> float:
    return float(value[-1] if isinstance(value, list) else value)


def _text(epochs: Sequence[int]) -> str:
    return str(epochs[0] if len(epochs) == 1 else list(epochs))
