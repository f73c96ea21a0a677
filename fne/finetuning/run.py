"""The stage `finetune`, where the network is trained: what it reads, announces, trains and writes.

Fine-tuning is the training of the matching task with rows from the network instead of a store. The objective
is that of the dual-path paper's second stage, with mined captions.
"""

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fne.core import stat_cache
from fne.core.device import explain_out_of_memory, free_memory, prepare_device, synchronize
from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.processes import ALONE, Processes, joined
from fne.core.settings import Runtime
from fne.core.signals import graceful_stop
from fne.core.terminal import format_bytes, format_time, say
from fne.extraction.computer import GPU_BATCH
from fne.extraction.forward_pass import build_network
from fne.extraction.layers import CROP
from fne.extraction.networks import BACKBONES
from fne.extraction.preprocess import resize_for
from fne.extraction.settings import TORCHVISION, ExtractorSettings, InputFormat
from fne.extraction.weights import load_weights
from fne.finetuning.data import Crop, CropChoices, RandomCrops
from fne.finetuning.network_rows import NetworkRows, Photos
from fne.finetuning.settings import ALL, TERM_WEIGHTS, WITH_GRADIENT, Finetune, kind_fault
from fne.finetuning.tuned_network import TunedNetwork, trained_taps
from fne.matching.classifier_file import CLASSIFIER_FILE, ClassifierFile, read_classifier
from fne.matching.data import PairBatch, Pairs
from fne.matching.encode import encode_captions, encode_images
from fne.matching.hard_negatives import LossChoices
from fne.matching.instance_loss import FLOAT, Classes, Instance
from fne.matching.mined_captions import MINING_VERSION, AnchorDraw
from fne.matching.model import Matcher
from fne.matching.model_file import MODEL_FILE, MODELS, read_model, write_tuned
from fne.matching.run import training_metrics
from fne.matching.task import MatchingData, MatchingOptions, MatchingTask, Objective, RateFactors
from fne.store.arrays import arrays_digest
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import Captioned, Image, captioned_in, read_captions, read_images, split_artifact
from fne.store.checksums import write_metrics
from fne.store.lineage import recorded_lineage
from fne.text.caption_vectors import has_caption_rows
from fne.text.tokens import Tokens, read_tokens
from fne.training.finished_runs import FOLDER, Finished, kept_path, training_key
from fne.training.history import write_history
from fne.training.loop import Schedule, step_generator
from fne.training.optimizers import sgd_nesterov
from fne.training.run import Job, train_or_load
from fne.training.settings import SgdNesterov

MEMORY_HINT = "lower runtime.batch or finetune.batch, or train fewer layers with finetune.first"


@dataclass(frozen=True)
class Places:
    """The files that fine-tuning reads, and the folder of the image files."""

    model: Path  # the folder of the model and its classifier
    images: Path
    captions: Path
    tokens: Path
    weights: Path
    root: Path


@dataclass(frozen=True)
class TuningInputs:
    """What fine-tuning starts from."""

    matcher: Matcher  # the model of the stage `train`
    model: Artifact  # where it comes from
    classifier: ClassifierFile | None  # the classes of its instance loss, if it has one
    images: Mapping[str, Image]  # by id
    training: list[Captioned]
    validation: list[Captioned]
    tokens: Tokens
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


def run_finetuning(
    settings: Finetune, runtime: Runtime, places: Places, tuned: Path, history: Path, metrics: Path
) -> None:
    """Train, and write the tuned network with its model, the history, and what the validation found."""
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, settings.threads)
    inputs = read_inputs(places)
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        task, rows = build_task(settings, inputs, runtime, device, processes)
        part = rows.network.part
        # Gradients are added up part by part.
        made_with = {"task": "finetune", **settings.model_dump(), "images_at_once": part}
        made_with["mining"] = MINING_VERSION
        key = training_key(made_with, digests_of(inputs, task), device.type, processes.count)
        job = Job(device, runtime.scratch_folder(), stopping, processes)
        try:
            if not processes.any(kept_path(job.scratch, FOLDER, key).exists()):
                with explain_out_of_memory(MEMORY_HINT):
                    cost = seconds_of(task, rows, settings, processes)
                backbone = inputs.extraction["backbone"]
                processes.log(announcement(task, rows.network, settings, backbone, cost))
            done = train_or_load(task, schedule_of(settings), key, job)
        finally:
            rows.close()
        if processes.first:
            found = training_metrics(done, task.data.validation.caption_counts)
            found["before"] = done.points[0].scores.main
            found |= {"threads": settings.threads, "images_at_once": part}
            written = settings.model_dump() | {name: found[name] for name in ("best_epoch", "started")}
            digest = write_tuned(tuned, task.matcher, rows.network.full_state(), written, inputs.lineage)
            write_history(history, done.points, digest, MODELS[0])
            write_metrics(metrics, found)
            say(summary(done))


def read_inputs(places: Places) -> TuningInputs:
    """Open what fine-tuning starts from."""
    matcher, origin = read_model(places.model / MODEL_FILE)
    files, catalog = read_images(places.images)
    refuse_without_network(origin, bool(files))
    classifier = places.model / CLASSIFIER_FILE
    found = read_classifier(classifier) if classifier.exists() else None
    words = read_tokens(places.tokens)
    captioned, sentences = read_captions(places.captions)
    split = split_artifact(places.captions, captioned, "train")
    given = [found.artifact] if found else []
    lineage = recorded_lineage(origin, *given, catalog, sentences, words.artifact, split)
    training, validation = (captioned_in(captioned, name) for name in ("train", "val"))
    by_id = {each.id: each for each in files}
    return TuningInputs(matcher, origin, found, by_id, training, validation, words, places, lineage)


def refuse_without_network(model: Artifact, has_images: bool) -> None:
    """Refuse a model that no network can be trained for."""
    recorded = model.lineage.get("activations", {}).get("settings", {})
    if not has_images:
        raise InputError(
            "params.yaml: catalog.images is 'none', but fine-tuning needs the image files; name their folder"
        )
    if "weights" not in model.lineage or not ExtractorSettings.model_fields.keys() <= recorded.keys():
        raise InputError(
            f"{model.path} was trained on imported features: there is no network to train; set embed.source "
            "to features/activations"
        )
    if has_caption_rows(model.lineage):
        raise InputError(
            f"{model.path} was trained on rows of captions: there is no text encoder to train; "
            "set tokenize.vectors to a file of word vectors"
        )
    kind = model.lineage["embeddings"]["settings"]["kind"]
    if kind not in WITH_GRADIENT:
        raise InputError(f"params.yaml: fine-tuning {kind_fault(kind)}")


def build_task(
    settings: Finetune,
    inputs: TuningInputs,
    runtime: Runtime,
    device: torch.device,
    processes: Processes = ALONE,
) -> tuple[MatchingTask, NetworkRows]:
    """Return the task and its rows, with the network, the model and the classifier on their device."""
    extraction, model = inputs.extraction, inputs.model.settings
    feeding = InputFormat.model_validate(extraction["input"]) if "input" in extraction else TORCHVISION
    network = open_network(settings, inputs, feeding, images_at_once(runtime, device), device)
    resize = resize_for(extraction["resize"], feeding)
    photos = Photos(inputs.places.images, inputs.images, inputs.places.root, resize, feeding, runtime.workers)
    choices = CropChoices(settings.crop_share, settings.crop_aspect, settings.mirror, feeding.filter)
    draw = AnchorDraw(inputs.training, settings.seed, settings.batch, settings.candidates)

    def own_crops(epoch: int) -> list[list[Crop]]:
        parts = [batch.part(processes.partition(len(batch))) for batch in draw.batches(epoch)]
        return [[(each, epoch) for each in part.image_ids] for part in parts]

    crops = RandomCrops(inputs.images, photos.root, settings.seed, choices)
    rows = NetworkRows(network, settings.network_rates(), photos, crops, own_crops)
    training, validation = (
        Pairs(captioned, rows, inputs.tokens) for captioned in (inputs.training, inputs.validation)
    )
    for name, present, least in (("train", training, 4), ("val", validation, 1)):
        if len(present) < least:
            raise InputError(
                f"the catalog has {len(present)} captioned images in split '{name}'; fine-tuning needs at "
                f"least {least}; see `catalog` in params.yaml"
            )
    matcher = inputs.matcher.to(device)
    if model.get("words") == "fixed":
        matcher.text_encoder.get_submodule("words").requires_grad_(False)
    phases = len(settings.phases())
    rank, image_classes, text_classes = (getattr(settings, key) for key in TERM_WEIGHTS)
    objective = Objective(
        "ranking", LossChoices(), settings.margin, rank, image_classes, text_classes, mined=True
    )
    options = MatchingOptions(
        rectified=bool(model.get("rectified")),
        factors=[_model_factors(model)] * phases,
        processes=processes,
        section="finetune",
        memory_hint=MEMORY_HINT,
    )
    data = MatchingData(training, validation, draw)
    classes = _classes(settings, inputs, device)
    return MatchingTask(matcher, [objective] * phases, data, options, classes), rows


def open_network(
    settings: Finetune, inputs: TuningInputs, feeding: InputFormat, part: int, device: torch.device
) -> TunedNetwork:
    """Return the network that made the rows of the model, `part` images of which are computed at once."""
    extraction, embedding = inputs.extraction, inputs.embedding
    backbone, layer = extraction["backbone"], embedding["layer"]
    taps = trained_taps(backbone, layer, settings.first)
    weights = load_weights(inputs.places.weights, backbone, feeding)
    merge(inputs.model, weights.artifact)
    network = build_network(backbone, weights, device, extraction["activations"], [layer])
    entrance = BACKBONES[backbone].taps[0].weighted
    return TunedNetwork(network, taps, embedding.get("rows") == "unit", min(part, settings.batch), entrance)


def digests_of(inputs: TuningInputs, task: MatchingTask) -> dict[str, str]:
    """Return the digests of what training reads, by which its result is kept."""
    weights = {name: value.cpu().numpy() for name, value in inputs.matcher.state_dict().items()}
    file = inputs.classifier
    classifier = {"weight": file.weight, "labels": file.labels} if file else {}
    if file and file.bias is not None:
        classifier["bias"] = file.bias
    made_with = [inputs.model.settings, inputs.extraction, inputs.embedding]
    return {
        "model": arrays_digest(weights),
        "classifier": arrays_digest(classifier),
        "network": inputs.model.lineage["weights"]["digest"],
        "settings": text_digest(json.dumps(made_with, sort_keys=True)),
        "train": task.data.training.digest(),
        "val": task.data.validation.digest(),
    }


def schedule_of(settings: Finetune) -> Schedule:
    """Return how to train; the weights before the first step are validated too."""
    own = SgdNesterov(momentum=settings.momentum, weight_decay=settings.weight_decay)
    return Schedule(
        settings.phases(),
        settings.seed,
        partial(sgd_nesterov, settings=own),
        clip=0.0,
        clip_by="global",
        validate_every=0,
        keep=settings.keep,
        validate_start=True,
    )


def announcement(
    task: MatchingTask, network: TunedNetwork, settings: Finetune, backbone: str, seconds: float
) -> str:
    """Return what the training costs in time and memory, and how to pay less.

    The memory is measured with blank images.
    """
    device, sizes = network.device, task.data.draw.sizes()
    blank = torch.zeros((network.part, 3, CROP, CROP), device=device)
    weights = FLOAT * sum(each.numel() for group in task.parameter_groups() for each in group.parameters)
    copies = 1 + (settings.keep == "best")  # and their momentum
    # Gradients are in memory, but not in a checkpoint.
    memory = network.activation_bytes(blank, settings.batch) + weights * (2 + copies)
    epochs, images = sum(phase.epochs for phase in settings.phases()), sum(sizes)
    last = last_block([tap.layer for tap in BACKBONES[backbone].taps])
    first = f"-S pipelines/finetuning/params.yaml:++finetune.first={last} trains the last layers only"
    layers = first if settings.first == ALL else ""
    return (
        f"fine-tuning from layer '{settings.first}': {images} images per epoch, {epochs} epochs, about "
        f"{format_time(seconds)} on {device.type}; memory {format_bytes(memory)} with "
        f"{network.part} images at once (runtime.batch), {format_bytes(free_memory(device))} are free; a "
        f"checkpoint has {format_bytes(weights * (1 + copies))}; cheaper: {layers or 'fewer finetune.epochs'}"
    )


def images_at_once(runtime: Runtime, device: torch.device) -> int:
    """Return how many images pass through the network at once, at most the batch."""
    return runtime.batch or (GPU_BATCH if device.type == "cuda" else torch.get_num_threads())


def seconds_of(task: MatchingTask, rows: NetworkRows, settings: Finetune, processes: Processes) -> float:
    """Return how long all steps and validations take, from two steps and a part of a validation.

    They are those of the training, from the images that are read to the gradients. No weight changes.
    """
    epochs, steps = sum(phase.epochs for phase in settings.phases()), task.steps()
    per_step = 0.0
    for number, batch in enumerate([*task.batches(0), *task.batches(1)][:2]):
        # The first step allocates memory and starts the processes that read.
        per_step = _seconds(partial(_gradients, task, batch, number), rows.network.device)
    rows.close()
    pairs, per_validation = task.data.validation, 0.0
    for encode, ids in ((encode_images, pairs.image_ids), (encode_captions, pairs.caption_ids)):
        some = ids[:: max(1, len(ids) // settings.batch)]
        seconds = _seconds(partial(deque, encode(task.matcher, pairs, some), maxlen=0), rows.network.device)
        per_validation += seconds / len(some) * len(ids) / processes.count
    # The weights before the first step are validated, too.
    return epochs * steps * per_step + (epochs + 1) * per_validation


def _gradients(task: MatchingTask, batch: PairBatch, number: int) -> None:
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
    convolutions = [each for each in layers if each.startswith("conv")]
    block = convolutions[-1].partition("_")[0]
    return next(each for each in convolutions if each.partition("_")[0] == block)


def summary(done: Finished) -> str:
    """Describe a finished fine-tuning in one line."""
    before, after = done.points[0].scores.main, done.kept.scores.main
    return (
        f"validation rsum {before:.1f} before, {after:.1f} after epoch {done.kept.epoch} of "
        f"{done.points[-1].epoch} (one crop per image; `evaluate_tuned` uses the crops of extract.crops)"
    )


def _classes(settings: Finetune, inputs: TuningInputs, device: torch.device) -> Classes | None:
    """Return the classifier that the stage `train` ended with, if it is used."""
    if not settings.has_instance_loss:
        return None
    file = inputs.classifier
    if file is None:
        raise InputError(
            f"params.yaml: finetune.image_class_weight is {settings.image_class_weight} and "
            f"finetune.text_class_weight is {settings.text_class_weight}, but there is no "
            f"{inputs.places.model / CLASSIFIER_FILE}: the stage `train` had no instance loss; set both to "
            "0, or use -S ++train.image_class_weight=1.0"
        )
    dropout = inputs.model.settings["instance"]["dropout"]
    count, dim = file.weight.shape
    loss = Instance(count, dim, file.bias is not None, dropout)
    state = {"weight": file.weight} | ({} if file.bias is None else {"bias": file.bias})
    loss.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    ids = sorted(record.id for record in inputs.training)
    if len(ids) != len(file.labels):
        raise InputError(
            f"{file.artifact.path}: has classes of {len(file.labels)} training images, but the catalog has "
            f"{len(ids)}; run `dvc repro train`"
        )
    return Classes(loss.to(device), dict(zip(ids, file.labels.tolist(), strict=True)))


def _model_factors(model: Mapping[str, Any]) -> RateFactors:
    """Return the factors on the learning rate of the model, those of its last phase in `train`."""

    def last(key: str) -> float:
        value = model.get(key, 1.0)
        return float(value[-1] if isinstance(value, list) else value)

    bias = model.get("instance", {}).get("bias_rate", 1.0)
    return RateFactors(last("words_rate"), last("classifier_rate"), last("gain_rate"), bias)
