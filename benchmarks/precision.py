"""How many ternary values flip when activations are computed in half precision.

`python -m benchmarks.precision PHOTOGRAPHS WEIGHTS` computes the rows of photographs with shared crops, in
float32 and in the precisions of `extract.precision`, all of them on the CPU: products and stored activations
in half precision, sums in float32, as on a GPU. Each feature is standardized by its mean and deviation over
these photographs in float32, and discretized with the thresholds of `params.yaml`.
"""

from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.timing import PROJECT
from fne.core.params import load_params
from fne.extraction.extractor import PRECISIONS
from fne.extraction.fast.crop_sharing import convolve_directly, share_crops
from fne.extraction.network import build_network
from fne.extraction.preprocess import normalize, squash
from fne.extraction.weights import load_weights

EXACT = "float32"


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
@click.option("--input", "fed", default="auto", show_default=True, help="As extract.input of params.yaml.")
def main(photographs: Path, weights: Path, fed: str, count: int, precision: tuple[str, ...]) -> None:
    """Count flipped ternary values of PHOTOGRAPHS with the WEIGHTS of VGG16."""
    names = sorted(path for path in photographs.iterdir() if path.suffix in (".jpg", ".jpeg", ".png"))[:count]
    images = torch.stack([squash(Image.open(path).convert("RGB")) for path in names])
    loaded = load_weights(weights, "vgg16", fed)
    network = build_network("vgg16", loaded, torch.device("cpu"))
    compute = share_crops(network, "ten", convolve_directly)
    low, high = (load_params(PROJECT / "params.yaml")["embed"][key] for key in ("low", "high"))
    exact = _rows(compute, normalize(images, loaded.input), EXACT)
    expected = ternary(exact, exact, low, high)
    print(f"{len(names)} photographs, {expected.size:,} values, thresholds {low} and {high}")
    for name in precision or [each for each in PRECISIONS if each != EXACT]:
        rows = _rows(compute, normalize(images, loaded.input), name)
        flipped = ternary(rows, exact, low, high) != expected
        difference = np.linalg.norm(rows - exact) / np.linalg.norm(exact)
        print(
            f"{name}: {flipped.sum():,} flipped ({flipped.mean():.3%}), relative difference {difference:.1e}"
        )
        ends = np.cumsum([layer.features for layer in network.layers])
        for layer, end in zip(network.layers, ends, strict=True):
            print(f"  {layer.name}: {flipped[:, end - layer.features : end].mean():.3%}")


@torch.inference_mode()
def _rows(compute: Callable[[Tensor], Tensor], images: Tensor, precision: str) -> np.ndarray:
    with torch.autocast("cpu", PRECISIONS[precision], enabled=precision != EXACT):
        return np.stack([compute(image).double().numpy() for image in images])


if __name__ == "__main__":
    main()
