"""The activations of ten crops through VGG16: ours, the usual way, and onnxruntime.

All compute the same rows from the same images in memory, with all threads that they
take by themselves, and are checked against each other before anything is measured.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import TenCrop

from benchmarks.side_by_side import compare, print_table, ratio
from fne.activations.crops import CROP, SIDE
from fne.activations.extractor import build_extractor
from fne.activations.settings import Choices
from fne.activations.weights import Weights, load_weights

# As many as the stage computes at once on a CPU.
IMAGES = 2
ROUNDS = 5
CPU = torch.device("cpu")
USUAL, ONNX, SHARING, OURS = "the usual way", "onnxruntime", "ours: shared crops", "ours: by default"


def extraction_sharing() -> float:
    """Ten-crop VGG16 with shared crops alone, against TenCrop and create_feature_extractor."""
    return _measure([USUAL, ONNX, SHARING], SHARING, USUAL)


def extraction() -> float:
    """Ten-crop VGG16 as the stage computes it by default, against TenCrop and create_feature_extractor."""
    return _measure([USUAL, OURS], OURS, USUAL)


def extraction_onnx() -> float:
    """Ten-crop VGG16 as the stage computes it by default, against onnxruntime in float32."""
    return _measure([ONNX, OURS], OURS, ONNX)


class _Means(nn.Module):
    """Mean activations of all layers over the crops of one image."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        model = torchvision.models.vgg16(weights=None)
        model.load_state_dict(weights.state, strict=False)
        names = [
            f"features.{index}" for index, module in enumerate(model.features) if isinstance(module, nn.ReLU)
        ]
        self.extractor = create_feature_extractor(model.eval(), [*names, "classifier.1", "classifier.4"])

    def forward(self, crops: Tensor) -> Tensor:
        layers = self.extractor(crops).values()
        return torch.cat([each.mean((2, 3)) if each.ndim == 4 else each for each in layers], dim=1).mean(
            dim=0
        )


def _measure(names: list[str], ours: str, opponent: str) -> float:
    images = torch.randn(IMAGES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    weights = load_weights(Path("weights/random.yaml"), "vgg16")
    with tempfile.TemporaryDirectory() as folder:
        variants = {name: _build(name, weights, Path(folder)) for name in names}
        _check({name: rows(images) for name, rows in variants.items()})
        seconds = compare({name: partial(rows, images) for name, rows in variants.items()}, ROUNDS)
    print_table(seconds, opponent, "images", IMAGES)
    return ratio(seconds, ours, opponent)


def _build(name: str, weights: Weights, folder: Path) -> Callable[[Tensor], np.ndarray]:
    if name == USUAL:
        return _usual(weights)
    if name == ONNX:
        return _onnx(weights, folder)
    choices = Choices(
        backbone="vgg16", activations="post_relu", resize="squash", crops="ten", precision="float32"
    )
    extractor = build_extractor(choices, weights, "auto" if name == OURS else "sharing", CPU)
    return lambda images: extractor.rows(images).numpy()


def _usual(weights: Weights) -> Callable[[Tensor], np.ndarray]:
    model = _Means(weights)

    @torch.no_grad()
    def rows(images: Tensor) -> np.ndarray:
        return np.stack([model(torch.stack(TenCrop(CROP)(image))).numpy() for image in images])

    return rows


def _onnx(weights: Weights, folder: Path) -> Callable[[Tensor], np.ndarray]:
    path = folder / "vgg16.onnx"
    example = torch.zeros(10, 3, CROP, CROP)
    torch.onnx.export(_Means(weights), (example,), str(path), input_names=["crops"], dynamo=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def rows(images: Tensor) -> np.ndarray:
        crops = [torch.stack(TenCrop(CROP)(image)).numpy() for image in images]
        return np.stack([session.run(None, {"crops": each})[0] for each in crops])

    return rows


def _check(rows: dict[str, np.ndarray]) -> None:
    first, *others = rows.values()
    for other in others:
        assert np.linalg.norm(other - first) < 1e-5 * np.linalg.norm(first)
