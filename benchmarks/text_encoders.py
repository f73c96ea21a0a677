"""Text encoders: the processor time that tf-idf, a GRU and the text CNN take per 1,000 captions.

The paper on dual-path networks says that a text CNN is faster than recurrent networks, on a GPU. Captions
are drawn with the lengths of Flickr8k, the same ones for all encoders. A step of training is forward,
backward and an update with SGD, of the encoder alone. The CNN encodes a caption from all start positions.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor

from benchmarks.flickr8k import BATCH, VOCABULARY, draw_batch
from benchmarks.timing import compare
from fne.core.distributed_layers import Step
from fne.core.processes import ALONE
from fne.matching.model import Matcher, Shape, new_matcher
from fne.matching.settings import Train

DIM, ROUNDS = 1024, 3
LONGEST = 32  # positions of the text CNN
RATE = 0.01
TICK = 1e-9  # seconds, for calls that take none

Captions = tuple[Tensor, Tensor]


def matcher(encoder: str, dim: int) -> Matcher:
    """Return a model with a text encoder, with the defaults of its settings."""
    schema = Train.nested().get(encoder)
    own = schema().model_dump() if schema else {}
    shape = Shape("linear", encoder, "cosine", False, 8, VOCABULARY, dim, dim, text_encoder_settings=own)
    return new_matcher(shape, seed=0)


def draw(batch: int) -> Captions:
    """Draw captions that the text CNN can read: a longer one is cut."""
    _, words, lengths = draw_batch(np.random.default_rng(0), batch, features=1)
    return words[:, :LONGEST], lengths.clamp(max=LONGEST)


def train_step(model: Matcher, captions: Captions) -> Callable[[], None]:
    """Return a step of training that moves the vectors towards fixed ones."""
    optimizer = torch.optim.SGD(model.text_encoder.parameters(), lr=RATE)
    target = torch.randn(len(captions[0]), model.shape.embed_dim, generator=torch.Generator().manual_seed(0))

    def run() -> None:
        model.train()
        optimizer.zero_grad()
        step = Step(torch.Generator().manual_seed(0), len(captions[0]), slice(0, len(captions[0])), ALONE)
        (model.embed_captions(*captions, step) * target).sum().backward()
        optimizer.step()

    return run


def encode(model: Matcher, captions: Captions) -> Callable[[], None]:
    """Return what encodes the captions."""

    @torch.no_grad()
    def run() -> None:
        model.eval()
        model.embed_captions(*captions)

    return run


def measure(dim: int, batch: int, rounds: int) -> None:
    """Print the median processor seconds per 1,000 captions, and how many times those of the GRU that is."""
    captions = draw(batch)
    models = {name: matcher(name, dim) for name in ("tfidf", "gru", "text_cnn")}
    kinds = {"train": train_step, "encode": encode}
    found = {
        kind: compare(
            {name: make(model, captions) for name, model in models.items()}, rounds, time.process_time
        )
        for kind, make in kinds.items()
    }
    print(
        f"{'encoder':<10}{'train':>10}{'of GRU':>8}{'encode':>10}{'of GRU':>8}   seconds per 1,000 captions"
    )
    for name in models:
        medians = [[statistics.median(found[kind][each]) for each in (name, "gru")] for kind in kinds]
        cells = (f"{1000 / batch * own:>10.3f}{own / max(gru, TICK):>8.2f}" for own, gru in medians)
        print(f"{name:<10}{''.join(cells)}")


def tiny(folder: Path) -> None:
    """Measure small encoders."""
    measure(dim=8, batch=2, rounds=1)


@click.command()
@click.option("--batch", default=BATCH, show_default=True, help="Captions per call.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Timed calls of each encoder.")
def main(batch: int, rounds: int) -> None:
    """Measure the text encoders, side by side."""
    measure(DIM, batch, rounds)


if __name__ == "__main__":
    main()
