"""How long a training would take on this machine, from a few steps of it on random data."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fne.matching.clipping import CLIPS
from fne.matching.losses import bind
from fne.matching.model import Matcher, new_matcher
from fne.matching.optimizers import OPTIMIZERS
from fne.matching.settings import Train

TIMED_STEPS = 3
SENTENCE = 12  # words; Flickr8k's captions have 11.8 on average
CAPTIONS = 5  # of an image


@dataclass(frozen=True)
class Work:
    """The size of a data set and of its images' embeddings."""

    features: int
    words: int
    train_images: int
    val_images: int


@dataclass(frozen=True)
class Pace:
    """Seconds for one step of training, and for encoding as many captions and images without training."""

    step: float
    encode: float


def hours(train: dict[str, Any], work: Work, pace: Pace) -> float:
    """Return how long all phases of a training take, validations included."""
    settings = Train.model_validate(train)
    pairs = work.train_images * (CAPTIONS if settings.captions == "all" else 1)
    steps = -(-pairs // settings.batch)
    epochs = sum(phase.epochs for phase in settings.phases())
    validations = epochs if settings.validate_every == 0 else epochs * steps / settings.validate_every
    encodings = validations * work.val_images * CAPTIONS / settings.batch
    return (epochs * steps * pace.step + encodings * pace.encode) / 3600


def pace(train: dict[str, Any], work: Work, device: torch.device) -> Pace:
    """Time a few steps of a training on random data, after one that warms up."""
    settings = Train.model_validate(train)
    matcher = new_matcher(settings.shape(work.features, work.words), settings.seed).to(device)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(settings.batch, work.features, generator=generator).to(device)
    words = torch.randint(1, work.words, (settings.batch, SENTENCE), generator=generator).to(device)
    lengths = torch.full((settings.batch,), SENTENCE)
    step = _stepper(settings, matcher, images, words, lengths)
    encode = partial(matcher.embed_captions, words, lengths)
    with torch.no_grad():
        encoding = _seconds(encode, device)
    return Pace(_seconds(step, device), encoding)


def _stepper(
    settings: Train, matcher: Matcher, images: Tensor, words: Tensor, lengths: Tensor
) -> Callable[[], None]:
    phase = settings.phases()[-1]
    loss = bind(phase.loss, settings.hardest, settings.top_k)
    optimizer = OPTIMIZERS[settings.optimizer](matcher.parameters(), phase.learning_rate)
    positives = torch.eye(len(images), dtype=torch.bool, device=images.device)

    def step() -> None:
        scores = matcher.similarity(matcher.embed_images(images), matcher.embed_captions(words, lengths))
        total = loss(scores, positives, phase.margin)
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        CLIPS[settings.clip_by](matcher.parameters(), settings.clip)
        optimizer.step()

    return step


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    work()
    times = []
    for _ in range(TIMED_STEPS):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    # What else the machine does can only make a step slower.
    return min(times)
