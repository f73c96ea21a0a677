"""`python -m benchmarks.finetuning_memory`: memory of fine-tuning, with and without gradient caching.

A step of one batch runs in a process of its own, with random weights and random images. Its peak memory is
compared with that of the same process before the step, and with what the stage announces. With gradient
caching a few images pass through the network at once; without, the whole batch does.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from benchmarks.timing import PROJECT
from fne.extraction.forward_pass import build_network
from fne.extraction.layers import CROP
from fne.extraction.networks import BACKBONES, build_backbone
from fne.extraction.settings import TORCHVISION
from fne.extraction.weights import Weights
from fne.finetuning.tuned_network import TunedNetwork, trained_taps
from fne.store.artifact import Artifact

NETWORKS = {
    "VGG16, last block": ("vgg16", "conv5_3", "conv5_1"),
    "ResNet-18, all layers": ("resnet18", "pool5", "all"),
}
MEGA = 10**6


@click.command()
@click.option("--batch", default=32, show_default=True)
@click.option("--at-once", default=2, show_default=True, help="Images at once with gradient caching.")
@click.option("--network", type=click.Choice(list(NETWORKS)), hidden=True)
@click.option("--part", default=0, hidden=True)
def main(batch: int, at_once: int, network: str | None, part: int) -> None:
    """Print the memory of a step for every network, with and without gradient caching."""
    if network:
        print(step_memory(network, batch, part))
        return
    measure(list(NETWORKS), batch, at_once)


def measure(networks: Sequence[str], batch: int, at_once: int) -> None:
    """Print the memory of a step for some networks, each in a process of its own."""
    print(f"{'network':<24} {'images at once':>14} {'announced':>10} {'measured':>10} {'seconds':>8}")
    for name in networks:
        for size in dict.fromkeys((at_once, batch)):
            command = [sys.executable, "-m", "benchmarks.finetuning_memory", "--network", name]
            command += ["--batch", str(batch), "--part", str(size)]
            done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
            announced, measured, seconds = done.stdout.split()[-3:]
            print(f"{name:<24} {size:>14} {announced:>7} MB {measured:>7} MB {seconds:>8}", flush=True)


def step_memory(network: str, batch: int, part: int) -> str:
    """Return the announced and the measured megabytes of a step, and its seconds."""
    backbone, layer, first = NETWORKS[network]
    drawn = Weights(
        Artifact(Path(__file__), "weights", ""), build_backbone(backbone).state_dict(), TORCHVISION
    )
    built = build_network(backbone, drawn, torch.device("cpu"), layers=[layer])
    entrance = BACKBONES[backbone].taps[0].weighted
    tuned = TunedNetwork(built, trained_taps(backbone, layer, first), lambda rows: rows, part, entrance)
    tuned(torch.zeros((1, 3, CROP, CROP)))  # what a first pass loads
    pixels = torch.zeros((batch, 3, CROP, CROP)).uniform_()
    before, started = _peak(), time.perf_counter()
    tuned(pixels).square().sum().backward()
    gradients = sum(each.numel() * 4 for own in tuned.trained_kinds().values() for each in own)
    measured, seconds = _peak() - before - gradients, time.perf_counter() - started
    announced = tuned.activation_bytes(torch.zeros((part, 3, CROP, CROP)), batch)
    return f"{announced / MEGA:.0f} {measured / MEGA:.0f} {seconds:.0f}"


def _peak() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def tiny(folder: Path) -> None:
    """Run with little data."""
    measure(["ResNet-18, all layers"], batch=1, at_once=1)


if __name__ == "__main__":
    main()
