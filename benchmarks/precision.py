"""How many ternary values flip when convolutions are computed in half precision.

`python -m benchmarks.precision PHOTOGRAPHS WEIGHTS` computes the rows of photographs with shared crops, in
float32 and in the precisions of `extract.precision`, on the CPU. Weights, bias, inputs and results of every
convolution are rounded to half precision, and products are summed in float32. This stands for a GPU, which
sums in another order and may round elsewhere; no GPU was compared. The layers are the convolutions of VGG16:
fully connected layers are not measured.

The sums use float32 numbers that are rounded: a product of two numbers in half precision is exact in float32,
unless it is too small for it. `--slow` uses torch's own convolutions in half precision instead, which take
many times as long and round in an order of their own, so their count may differ a little.

Each feature is standardized by its mean and deviation over these photographs in float32, and discretized with
the thresholds of `params.yaml`.
"""

from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.drawn import draw_dataset
from benchmarks.extraction import write_weights
from benchmarks.timing import PROJECT
from fne.core.settings import load_params
from fne.extraction.extractor import PRECISIONS
from fne.extraction.fast_convolutions.crop_sharing import Convolve, Step, convolve_directly, share_crops
from fne.extraction.forward_pass import Network, build_network
from fne.extraction.networks import BACKBONES
from fne.extraction.preprocess import normalize, squash
from fne.extraction.weights import load_weights

EXACT = "float32"
CONVOLUTIONS = [name for name in BACKBONES["vgg16"].names if name.startswith("conv")]


def ternary(rows: np.ndarray, like: np.ndarray, low: float, high: float) -> np.ndarray:
    """Discretize rows by the mean and the deviation of `like`."""
    mean, deviation = like.mean(axis=0), like.std(axis=0)
    scores = (rows - mean) / np.where(deviation > 0, deviation, 1)
    return (scores > high).astype(np.int8) - (scores < low).astype(np.int8)


@click.command()
@click.argument("photographs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("weights", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--count", default=24, show_default=True, help="The number of photographs, in order of name.")
@click.option("--precision", multiple=True, type=click.Choice([name for name in PRECISIONS if name != EXACT]))
@click.option("--layer", "chosen", multiple=True, default=CONVOLUTIONS, help="Only these; repeatable.")
@click.option("--slow", is_flag=True, help="Use torch's own convolutions in half precision.")
@click.option("--input", "fed", default="auto", show_default=True, help="As extract.input of params.yaml.")
def main(
    photographs: Path,
    weights: Path,
    slow: bool,
    fed: str,
    count: int,
    precision: tuple[str, ...],
    chosen: tuple[str, ...],
) -> None:
    """Count flipped ternary values of PHOTOGRAPHS with the WEIGHTS of VGG16."""
    names = sorted(path for path in photographs.iterdir() if path.suffix in (".jpg", ".jpeg", ".png"))[:count]
    loaded = load_weights(weights, "vgg16", fed)
    prepared = [normalize(squash(Image.open(path).convert("RGB")), loaded.input) for path in names]
    network = build_network("vgg16", loaded, torch.device("cpu"), layers=chosen)
    low, high = (load_params(PROJECT / "params.yaml")["embed"][key] for key in ("low", "high"))
    exact = _rows(network, prepared, EXACT, slow)
    expected = ternary(exact, exact, low, high)
    print(f"{len(names)} photographs, {expected.size:,} values, thresholds {low} and {high}")
    for name in precision or [each for each in PRECISIONS if each != EXACT]:
        rows = _rows(network, prepared, name, slow)
        flipped = ternary(rows, exact, low, high) != expected
        difference = np.linalg.norm(rows - exact) / np.linalg.norm(exact)
        print(
            f"{name}: {flipped.sum():,} flipped ({flipped.mean():.3%}), relative difference {difference:.1e}"
        )
        ends = np.cumsum([layer.features for layer in network.layers])
        for layer, end in zip(network.layers, ends, strict=True):
            print(f"  {layer.name}: {flipped[:, end - layer.features : end].mean():.3%}")


@torch.inference_mode()
def _rows(network: Network, images: list[Tensor], precision: str, slow: bool) -> np.ndarray:
    half = precision != EXACT
    compute = share_crops(
        network, "ten", _rounding(PRECISIONS[precision]) if half and not slow else convolve_directly
    )
    with torch.autocast("cpu", PRECISIONS[precision], enabled=half and slow):
        return np.stack([compute(image).double().numpy() for image in images])


def _rounding(dtype: torch.dtype) -> Convolve:
    """Return a convolution whose inputs, weights and results are rounded to `dtype`."""

    def convolve(step: Step, pieces: list[tuple[Tensor, int]]) -> list[Tensor]:
        assert isinstance(step.module, nn.Conv2d)
        weight, bias = (each.to(dtype).float() for each in step.module.parameters())
        results = []
        for piece, padding in pieces:
            rounded = piece.to(dtype).float().permute(0, 3, 1, 2)
            values = functional.conv2d(rounded, weight, bias, padding=padding).to(dtype).float()
            results.append((values.relu_() if step.relu else values).permute(0, 2, 3, 1).contiguous())
        return results

    return convolve


def tiny(folder: Path) -> None:
    """Run with two drawn images and two layers."""
    photographs = draw_dataset(folder) / "images"
    few = ["--count", "2", "--input", "torchvision", "--layer", "conv1_1", "--layer", "conv1_2"]
    main.main([str(photographs), str(write_weights(folder)), *few], standalone_mode=False)


if __name__ == "__main__":
    main()
