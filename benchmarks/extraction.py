"""Speed and memory of the extraction of activations.

The variants of ten-crop VGG16 compute the same rows from the same images in memory, each with its
default number of threads. Their results are compared before anything is timed. Peak memory is that
of the `extract` stage, which must not grow with the data set.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torchvision
from ruamel.yaml import YAML
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import TenCrop

from benchmarks.timing import PROJECT, Ratio, compare, print_table, ratio
from fne.extraction.extractor import build_extractor
from fne.extraction.layers import CROP
from fne.extraction.networks import BACKBONES, build_backbone
from fne.extraction.settings import SIDE, TORCHVISION, ExtractorSettings
from fne.extraction.weights import Weights, load_weights
from fne.store.artifact import Artifact

IMAGES = 2  # the batch of the stage on a CPU
ROUNDS = 5
FIRST = ("features.0", "features.2")  # the modules of conv1_1 and conv1_2
SIZES = (100, 600)  # images, for the memory benchmark
CPU = torch.device("cpu")
USUAL, ONNX = "TenCrop, create_feature_extractor", "onnxruntime"
SHARING, OURS = "ours: shared crops", "ours: default"


def extraction_sharing() -> Ratio:
    """Ten-crop VGG16 with crop sharing only, compared with TenCrop and create_feature_extractor."""
    return measure([USUAL, ONNX, SHARING], SHARING, USUAL)


def extraction() -> Ratio:
    """Ten-crop VGG16 with the defaults of the stage, compared with TenCrop and create_feature_extractor."""
    return measure([USUAL, OURS], OURS, USUAL)


def extraction_onnx() -> Ratio:
    """Ten-crop VGG16 with the defaults of the stage, compared with onnxruntime in float32."""
    return measure([ONNX, OURS], OURS, ONNX)


def extraction_memory(sizes: tuple[int, int] = SIZES) -> Ratio:
    """Extract with AlexNet; the ratio is the peak memory for 100 images over that for 600."""
    peaks = {images: _peak_memory(images) for images in dict.fromkeys(sizes)}
    print("images   peak memory, MB")
    for images, peak in peaks.items():
        print(f"{images:>6}   {peak / 1e6:>15,.0f}")
    grown = peaks[sizes[0]] / peaks[sizes[1]]
    return Ratio(grown, grown)


def tiny(folder: Path) -> None:
    """Run all with the first two layers of VGG16, or with ten images."""
    weights = draw_weights("vgg16", FIRST)
    measure([USUAL, ONNX, SHARING, OURS], OURS, USUAL, weights, images=1, rounds=1)
    extraction_memory(sizes=(10, 10))


def draw_weights(backbone: str, modules: Sequence[str]) -> Weights:
    """Return random weights of some modules of a network, quickly."""
    with torch.device("meta"):
        state = build_backbone(backbone).state_dict()
    generator = torch.Generator().manual_seed(0)
    drawn = {
        name: 0.05 * torch.randn(value.shape, generator=generator)
        for name, value in state.items()
        if name.rpartition(".")[0] in modules
    }
    return Weights(Artifact(Path("drawn"), "weights", ""), drawn, TORCHVISION)


def write_weights(folder: Path) -> Path:
    """Write random weights of VGG16's first two layers."""
    path = folder / "weights.safetensors"
    save_file(draw_weights("vgg16", FIRST).state, path)
    return path


class Means(nn.Module):
    """The mean activations of all layers over the crops of one image."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        with torch.device("meta"):
            model = torchvision.models.vgg16(weights=None)
        model.load_state_dict(weights.state, strict=False, assign=True)
        layers = [
            tap.activated for tap in BACKBONES["vgg16"].taps if f"{tap.weighted}.weight" in weights.state
        ]
        self.extractor = create_feature_extractor(model.eval(), layers)

    def forward(self, crops: Tensor) -> Tensor:
        """Return (features,) for (crops, channels, height, width)."""
        layers = self.extractor(crops).values()
        return torch.cat([each.mean((2, 3)) if each.ndim == 4 else each for each in layers], dim=1).mean(
            dim=0
        )


def measure(
    names: list[str],
    ours: str,
    baseline: str,
    weights: Weights | None = None,
    images: int = IMAGES,
    rounds: int = ROUNDS,
) -> Ratio:
    """Compare some ways of computing rows of ten-crop VGG16; random weights are drawn if none are given."""
    weights = weights or load_weights(PROJECT / "weights/random.yaml", "vgg16")
    prepared = torch.randn(images, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        variants = {name: _build(name, weights, Path(folder)) for name in names}
        _check({name: rows(prepared) for name, rows in variants.items()})
        seconds = compare({name: partial(rows, prepared) for name, rows in variants.items()}, rounds)
    print_table(seconds, baseline, "images", images)
    return ratio(seconds, ours, baseline)


def _build(name: str, weights: Weights, folder: Path) -> Callable[[Tensor], np.ndarray]:
    if name == USUAL:
        return _usual(weights)
    if name == ONNX:
        return _onnx(weights, folder)
    settings = ExtractorSettings(
        backbone="vgg16",
        activations="post_relu",
        resize="squash",
        crops="ten",
        views="mean",
        layers="all",
        precision="float32",
    )
    extractor = build_extractor(settings, weights, "auto" if name == OURS else "sharing", CPU)
    return lambda images: extractor.rows(images).numpy()


def _usual(weights: Weights) -> Callable[[Tensor], np.ndarray]:
    model = Means(weights)

    @torch.no_grad()
    def rows(images: Tensor) -> np.ndarray:
        return np.stack([model(torch.stack(TenCrop(CROP)(image))).numpy() for image in images])

    return rows


def _onnx(weights: Weights, folder: Path) -> Callable[[Tensor], np.ndarray]:
    path = folder / "vgg16.onnx"
    export_onnx(Means(weights), torch.zeros(10, 3, CROP, CROP), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def rows(images: Tensor) -> np.ndarray:
        crops = [torch.stack(TenCrop(CROP)(image)).numpy() for image in images]
        return np.stack([session.run(None, {"crops": each})[0] for each in crops])

    return rows


def export_onnx(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a model as ONNX, with one input `crops`; torch's newer exporter needs a package more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(model, (example,), str(path), input_names=["crops"], dynamo=False)


def _check(rows: dict[str, np.ndarray]) -> None:
    first, *others = rows.values()
    for other in others:
        assert np.linalg.norm(other - first) < 1e-5 * np.linalg.norm(first)


def _peak_memory(images: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(PROJECT / "weights", folder / "weights")
        yaml = YAML()
        params = yaml.load(PROJECT / "params.yaml")
        params["render"].update(images=images, side=64)
        params["extract"].update(backbone="alexnet", crops="center")
        yaml.dump(params, folder / "params.yaml")
        _run_stage(folder, "render", "data/demo", "data/demo_judgments.txt")
        outs = ("images.jsonl", "captions.jsonl", "rejects.csv", "catalog.json")
        _run_stage(folder, "catalog", *(f"data/{each}" for each in outs))
        return _run_stage(folder, "extract", "data/images.jsonl", "features/activations")


def _run_stage(folder: Path, stage: str, *arguments: str) -> float:
    """Run a stage and return the peak memory of its process in bytes."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", f"stages.{stage}", *arguments]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024.0
