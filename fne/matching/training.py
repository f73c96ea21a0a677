"""Training: phases of epochs, each epoch judged on the validation images."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from tqdm import tqdm

from fne.core.errors import InputError
from fne.matching.losses import LOSSES
from fne.matching.model import Matcher
from fne.matching.pairs import Pairs
from fne.matching.phases import Phase
from fne.matching.validation import Validation, validate

Objective = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Schedule:
    """How training goes about it; `seed` decides the order of the data."""

    phases: list[Phase]
    batch: int
    clip: float
    seed: int


@dataclass(frozen=True)
class Epoch:
    """What there is to tell after an epoch; `loss` is per image."""

    number: int
    phase: int
    loss: float
    validation: Validation


def train(
    matcher: Matcher, schedule: Schedule, training: Pairs, validation: Pairs, tell: Callable[[Epoch], None]
) -> Epoch:
    """Train `matcher` in place; it ends with the weights of the best epoch, which is returned.

    A phase starts from the best weights so far. It ends after its epochs, or when it has
    not bettered its own best validation for `patience` of them.
    """
    best: Epoch | None = None
    best_state: dict[str, Tensor] = {}
    number = 0
    for phase_number, phase in enumerate(schedule.phases, start=1):
        if best_state:
            matcher.load_state_dict(best_state)
        objective = partial(LOSSES[phase.loss], margin=phase.margin)
        optimizer = torch.optim.Adam(matcher.parameters(), lr=phase.learning_rate)
        phase_best, waited = -1.0, 0
        title = f"train, phase {phase_number} of {len(schedule.phases)}"
        with tqdm(total=phase.epochs, desc=title, unit="epoch", disable=None) as progress:
            for _ in range(phase.epochs):
                batches = training.draw(schedule.seed, number, schedule.batch)
                loss = _train_epoch(matcher, objective, optimizer, schedule.clip, training, batches)
                epoch = Epoch(number, phase_number, loss, validate(matcher, validation))
                rsum = epoch.validation.rsum
                tell(epoch)
                number += 1
                if best is None or rsum > best.validation.rsum:
                    best = epoch
                    best_state = {name: value.clone() for name, value in matcher.state_dict().items()}
                waited = 0 if rsum > phase_best else waited + 1
                phase_best = max(phase_best, rsum)
                progress.set_postfix(
                    loss=f"{loss:.3g}", rsum=f"{rsum:.1f}", best=f"{best.validation.rsum:.1f}"
                )
                progress.update()
                if waited >= phase.patience:
                    break
    if best is None:
        raise ValueError("there is no phase to train")
    matcher.load_state_dict(best_state)
    return best


def _train_epoch(
    matcher: Matcher,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    clip: float,
    pairs: Pairs,
    batches: Iterable[tuple[list[str], list[str]]],
) -> float:
    matcher.train()
    total = 0.0
    for step, (image_ids, caption_ids) in enumerate(batches, start=1):
        words, lengths = pairs.captions(caption_ids)
        images = matcher.embed_images(pairs.images(image_ids).to(matcher.device))
        captions = matcher.embed_captions(words.to(matcher.device), lengths)
        scores = matcher.similarity(images, captions)
        loss = objective(scores, torch.eye(len(scores), dtype=torch.bool, device=scores.device))
        if not loss.isfinite():
            raise InputError(
                f"training stopped: the loss is {loss.item()} at step {step} of the epoch, with images "
                f"{', '.join(image_ids[:3])}, …; lower train.learning_rate or look at these images"
            )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(matcher.parameters(), clip)
        optimizer.step()
        total += loss.item()
    return total / len(pairs)
