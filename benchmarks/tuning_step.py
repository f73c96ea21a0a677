"""One step of fine-tuning with a captioner: the whole step, and torch's forward and backward pass alone.

VGG16 is trained from conv5_1 on with 32 images, one caption each. The opponent passes the same images through
the same network at once and backwards through the same layers, without a captioner, an optimizer or parts.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Ratio, compare, print_table, ratio
from fne.describing.data import Examples
from fne.describing.model import new_describing_model, shape_of
from fne.describing.settings import TrainCaptioner
from fne.describing.task import Batching, DescribingTask, Objective
from fne.extraction.forward_pass import build_network
from fne.extraction.networks import build_backbone, find_backbone
from fne.extraction.settings import TORCHVISION
from fne.extraction.weights import Weights
from fne.finetuning.network_rows import NetworkRows
from fne.finetuning.tuned_network import TunedNetwork, trained_taps
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned
from fne.training.loop import Trainer
from fne.training.run import schedule_of
from fne.training.task import ParameterGroup

LAYER, FIRST, BATCH, WORDS, CONCEPTS, LENGTH = "conv5_3", "conv5_1", 32, 2540, 1000, 11
ALONE, OURS = "torch's forward and backward pass", "ours, the whole step"


def finetuning(backbone: str = "vgg16", batch: int = BATCH, side: int = 224, rounds: int = 3) -> Ratio:
    """Make steps of fine-tuning with a captioner, against the passes of torch through the same layers."""
    layer, first = (LAYER, FIRST) if backbone == "vgg16" else ("conv2", "conv2")
    pixels = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    network = _network(backbone, layer, first)
    steps = {ALONE: _passes(network, pixels), OURS: _whole_step(network, pixels)}
    seconds = compare(steps, rounds, time.process_time)
    print_table(seconds, ALONE, "images", batch)
    return ratio(seconds, OURS, ALONE)


def tiny(folder: Path) -> None:
    """Run it with little data."""
    finetuning("alexnet", batch=4, side=64, rounds=1)


def _network(backbone: str, layer: str, first: str) -> TunedNetwork:
    torch.manual_seed(0)
    state = build_backbone(backbone).state_dict()
    drawn = Weights(Artifact(Path(__file__), "weights", ""), state, TORCHVISION)
    built = build_network(backbone, drawn, torch.device("cpu"), layers=[layer])
    taps, entrance = trained_taps(backbone, layer, first), find_backbone(backbone).taps[0].weighted
    return TunedNetwork(built, taps, lambda rows: rows, torch.get_num_threads(), entrance)


def _passes(network: TunedNetwork, pixels: Tensor) -> Callable[[], None]:
    modules = network._network.modules

    def step() -> None:
        values = pixels.contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            for name in network._below:
                values = modules[name](values)
        for name in network._above:
            values = modules[name](values)
        values.mean(dim=(2, 3)).sum().backward()  # type: ignore[no-untyped-call]
        network.zero_grad()

    return step


class _InMemory:
    """The rows of images whose pixels are in memory."""

    def __init__(self, network: TunedNetwork, pixels: Tensor) -> None:
        self.network, self._pixels = network, pixels

    def check_ids(self, ids: Sequence[str]) -> None:
        pass

    def parameter_groups(self) -> list[ParameterGroup]:
        kinds = self.network.trained_kinds().items()
        return [ParameterGroup(kind, own) for kind, own in kinds if own]

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        rows: Tensor = self.network(self._pixels)
        return rows


def _whole_step(network: TunedNetwork, pixels: Tensor) -> Callable[[], object]:
    count, generator = len(pixels), np.random.default_rng(0)
    records = [Captioned(str(number), "train", ("",), ()) for number in range(count)]
    labels = generator.random((count, CONCEPTS)) < 0.02
    sequences = [[generator.integers(2, WORDS, LENGTH).tolist()] for _ in records]
    source: NetworkRows = _InMemory(network, pixels)  # type: ignore[assignment]
    examples = Examples(records, source, labels, sequences, several=True)
    settings = TrainCaptioner.model_validate(
        {"learns": ["jointly"], "epochs": [1], "units": 512, "word_dim": 512}
    )
    model = new_describing_model(shape_of(settings, network.features, CONCEPTS, WORDS), 0)
    objective, batching = Objective.of(settings, [1e-4]), Batching(0, count)
    task = DescribingTask("captioner", model, objective, examples, batching, validation=None)  # type: ignore[arg-type]
    trainer = Trainer(task, schedule_of(settings, settings.titles()))
    return partial(trainer.step, task.batches(0)[0])
