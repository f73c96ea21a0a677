"""How long a training would take on this machine, from one epoch of it on random data.

A long epoch is timed for some seconds only: its steps are alike.
"""

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

TIMED_SECONDS = 20.0  # at most, for the steps of an epoch, and for its validation
LEAST_TIMES = 3  # however long that takes
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
    """Seconds for a step of training and for a batch of the validation; how many steps were timed."""

    step: float
    encode: float
    timed: int
    steps: int  # of an epoch

    @property
    def basis(self) -> str:
        """What was timed, in words."""
        if self.timed == self.steps:
            return "one epoch timed here"
        return f"{self.timed} of the {self.steps} steps of an epoch, timed here"


@dataclass(frozen=True)
class Estimate:
    """How long a training would take, and from what that was concluded."""

    hours: float
    basis: str


def estimate(train: dict[str, Any], work: Work, pace: Pace) -> Estimate:
    """Return how long all phases of a training take, validations included."""
    settings = Train.model_validate(train)
    steps, epochs = _steps(settings, work), sum(phase.epochs for phase in settings.phases())
    validations = epochs if settings.validate_every == 0 else epochs * steps / settings.validate_every
    seconds = epochs * steps * pace.step + validations * _encodings(settings, work) * pace.encode
    return Estimate(seconds / 3600, pace.basis)


def in_words(hours: float) -> str:
    """Return a time as people say it.

    Example:
        >>> in_words(1.25), in_words(0.5)
        ('1.2 hours', '30.0 minutes')
    """
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def pace(
    train: dict[str, Any], work: Work, device: torch.device, most_seconds: float = TIMED_SECONDS
) -> Pace:
    """Time an epoch of a training and its validation on random data, each for `most_seconds` at most."""
    settings = Train.model_validate(train)
    matcher = new_matcher(settings.shape(work.features, work.words), settings.seed).to(device)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(settings.batch, work.features, generator=generator).to(device)
    words = torch.randint(1, work.words, (settings.batch, SENTENCE), generator=generator).to(device)
    lengths = torch.full((settings.batch,), SENTENCE)
    steps = _steps(settings, work)
    step = _stepper(settings, matcher, images, words, lengths)
    step_seconds, timed = _timed(step, steps, most_seconds, device)
    with torch.no_grad():
        encode = partial(matcher.embed_captions, words, lengths)
        encode_seconds, _ = _timed(encode, _encodings(settings, work), most_seconds, device)
    return Pace(step_seconds, encode_seconds, timed, steps)


def _steps(settings: Train, work: Work) -> int:
    """Return how many steps an epoch has."""
    pairs = work.train_images * (CAPTIONS if settings.captions == "all" else 1)
    return -(-pairs // settings.batch)


def _encodings(settings: Train, work: Work) -> int:
    """Return how many batches of captions a validation encodes."""
    return -(-work.val_images * CAPTIONS // settings.batch)


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


def _timed(
    work: Callable[[], object], times: int, most_seconds: float, device: torch.device
) -> tuple[float, int]:
    """Do something again and again; return its mean seconds and how often, without a first time."""
    _finish(work, device)
    least = max(1, min(times, LEAST_TIMES))
    start = time.perf_counter()
    done = 0
    while done < least or (done < times and time.perf_counter() - start < most_seconds):
        _finish(work, device)
        done += 1
    return (time.perf_counter() - start) / done, done


def _finish(work: Callable[[], object], device: torch.device) -> None:
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
