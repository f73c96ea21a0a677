"""How long a training takes on this machine, estimated from one epoch on random data.

The steps of an epoch are alike, so a long epoch is timed only for some seconds. Of a fine-tuning, the image
network is timed, which takes nearly all of the time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fne.core.device import synchronize
from fne.core.params import Runtime
from fne.extraction.backbones import BACKBONES, build_backbone
from fne.extraction.network import build_network
from fne.extraction.preprocess import TORCHVISION
from fne.extraction.weights import Weights
from fne.losses.instance import Classes, new_instance
from fne.models.matcher import new_matcher
from fne.store.artifact import Artifact
from fne.tasks.finetuning.network import TunedNetwork, trained_taps
from fne.tasks.finetuning.settings import Finetune
from fne.tasks.finetuning.train import images_at_once, seconds_per_image
from fne.tasks.matching.data import Batch
from fne.tasks.matching.settings import Train
from fne.tasks.matching.task import MatchingTask
from fne.training.loop import Trainer

MAX_SECONDS = 20.0  # for the steps of an epoch, and again for its validation
MIN_REPEATS = 3  # even if they take longer
WORDS_PER_CAPTION = 12  # captions of Flickr8k have 11.8 on average
CAPTIONS_PER_IMAGE = 5
# The settings that the time of a step depends on; seeds, learning rates and margins are not among them.
TIMING_KEYS = (
    "image_head",
    "image_heads",
    "text_encoder",
    "text_encoders",
    "similarity",
    "embed_dim",
    "word_dim",
    "batch",
    "threads",
    "loss",
    "optimizer",
    "rank_weight",
    "image_class_weight",
    "text_class_weight",
    "terms",
)


@dataclass(frozen=True)
class Workload:
    """The size of a data set and of its image embeddings."""

    features: int
    words: int
    train_images: int
    val_images: int


@dataclass(frozen=True)
class Timing:
    """Seconds per training step and per validation batch, and how many steps were timed."""

    step: float
    encode: float
    timed: int
    steps: int  # per epoch

    @property
    def basis(self) -> str:
        """What was timed, as text."""
        if self.timed == self.steps:
            return "one epoch timed here"
        return f"{self.timed} of the {self.steps} steps of an epoch, timed here"


@dataclass(frozen=True)
class Estimate:
    """The estimated duration of a training, and what it is based on."""

    hours: float
    basis: str


def time_tuning(
    settings: Finetune, backbone: str, layer: str, runtime: Runtime, device: torch.device
) -> float:
    """Time the image network while it is trained, with random weights; return the seconds per image.

    Args:
        settings: of the fine-tuning.
        backbone: the network.
        layer: the layer that the model reads.
        runtime: says how many images pass through it at once.
        device: what computes.
    """
    taps = trained_taps(backbone, layer, settings.first)
    drawn = Weights(Artifact(Path(), "weights", ""), build_backbone(backbone).state_dict(), TORCHVISION)
    network = build_network(backbone, drawn, device, layers=[layer])
    part = min(images_at_once(runtime, device), settings.batch)
    tuned = TunedNetwork(network, taps, False, part, BACKBONES[backbone].taps[0].weighted)
    return seconds_per_image(tuned, device)


def tuning_hours(settings: Finetune, work: Workload, seconds: float) -> float:
    """Return the duration of a fine-tuning, including its validations, which have no backward pass.

    Args:
        settings: of the fine-tuning.
        work: the size of the data set.
        seconds: per image of a step, of `time_tuning`.
    """
    epochs = sum(phase.epochs for phase in settings.phases())
    images = max(work.train_images // settings.batch * settings.batch, min(work.train_images, settings.batch))
    # A step passes twice forward and once backward, which takes as long as two forward passes.
    validations = (epochs + 1) * work.val_images / 4
    return (epochs * images + validations) * seconds / 3600


class RandomPairs:
    """A batch of random images and captions, in place of `fne.tasks.matching.data.Pairs`."""

    def __init__(self, work: Workload, batch: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.caption_counts = np.full(batch, CAPTIONS_PER_IMAGE)
        self._rows = torch.randn(batch, work.features, generator=generator)
        self._words = torch.randint(1, work.words, (batch, WORDS_PER_CAPTION), generator=generator)

    def images(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        """Return rows (images, features)."""
        return self._rows[: len(ids)]

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return words (captions, longest) and lengths (captions)."""
        return self._words[: len(ids)], torch.full((len(ids),), WORDS_PER_CAPTION)


def estimate(train: dict[str, Any], work: Workload, timing: Timing) -> Estimate:
    """Return the duration of all phases of a training, including validations."""
    settings = Train.model_validate(train)
    steps, epochs = _steps(settings, work), sum(values["epochs"] for values in settings.phase_values())
    validations = epochs if settings.validate_every == 0 else epochs * steps / settings.validate_every
    seconds = epochs * steps * timing.step + validations * _validation_batches(settings, work) * timing.encode
    return Estimate(seconds / 3600, timing.basis)


def format_hours(hours: float) -> str:
    """Return a duration as text.

    Example:
        >>> format_hours(1.25), format_hours(0.5)
        ('1.2 hours', '30.0 minutes')
    """
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def time_training(
    train: dict[str, Any], work: Workload, device: torch.device, max_seconds: float = MAX_SECONDS
) -> Timing:
    """Time an epoch of a training and its validation on random data, each for at most `max_seconds`."""
    settings = Train.model_validate(train)
    trainer, batch = random_training(settings, work, device)
    steps = _steps(settings, work)
    step_seconds, timed = _repeat(partial(trainer.step, batch), steps, max_seconds, device)
    matcher = cast(MatchingTask, trainer.task).matcher.eval()
    words, lengths = RandomPairs(work, settings.batch).captions(batch.caption_ids)
    with torch.no_grad():
        encode = partial(matcher.embed_captions, words.to(device), lengths)
        encode_seconds, _ = _repeat(encode, _validation_batches(settings, work), max_seconds, device)
    return Timing(step_seconds, encode_seconds, timed, steps)


def random_training(settings: Train, work: Workload, device: torch.device) -> tuple[Trainer[Batch], Batch]:
    """Return a trainer with fresh weights on a device, and a batch of random data."""
    matcher = new_matcher(settings.shape(work.features, work.words), settings.seed).to(device)
    pairs: Any = RandomPairs(work, settings.batch)
    task = MatchingTask(
        matcher,
        settings.objectives(),
        pairs,
        pairs,
        settings.seed,
        settings.batch,
        settings.captions,
        classes=_classes(settings, work, device),
    )
    ids = [str(number) for number in range(settings.batch)]
    return Trainer(task, settings.schedule(settings.loss_titles())), Batch(ids, ids)


def _classes(settings: Train, work: Workload, device: torch.device) -> Classes | None:
    """Return a classifier for the images of a random batch, if there is an instance loss."""
    if not settings.has_instance_loss:
        return None
    count = settings.instance.classes or work.train_images
    loss = new_instance(count, settings.embed_dim, settings.instance, settings.seed).to(device)
    return Classes(loss, {str(number): number % count for number in range(settings.batch)})


def _steps(settings: Train, work: Workload) -> int:
    """Return the number of steps per epoch."""
    pairs = work.train_images * (CAPTIONS_PER_IMAGE if settings.captions == "all" else 1)
    return -(-pairs // settings.batch)


def _validation_batches(settings: Train, work: Workload) -> int:
    """Return the number of caption batches per validation."""
    return -(-work.val_images * CAPTIONS_PER_IMAGE // settings.batch)


def _repeat(
    work: Callable[[], object], times: int, max_seconds: float, device: torch.device
) -> tuple[float, int]:
    """Call a function repeatedly after a warm-up call; return its mean seconds and the number of calls."""
    _call(work, device)
    least = max(1, min(times, MIN_REPEATS))
    start = time.perf_counter()
    done = 0
    while done < least or (done < times and time.perf_counter() - start < max_seconds):
        _call(work, device)
        done += 1
    return (time.perf_counter() - start) / done, done


def _call(work: Callable[[], object], device: torch.device) -> None:
    work()
    synchronize(device)
