"""Programs that a user could pick instead, for the rows of ten-crop VGG16 and of networks of timm.

`python -m benchmarks.opponents` prints, for each network with random weights and all layers, the speed of our
extraction, of torch (eager, channels_last, `torch.compile`), of OpenVINO in float32 and in its default
precision, and for VGG16 of ncnn, and how far their rows are from those of eager torch. It updates the rows of
the networks in benchmarks/README.md. OpenVINO and ncnn are optional (`pip install -e '.[bench]'`); what is
not installed is left out. `make bench` does not run it.
"""

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import torch
import torchvision
from torch import Tensor, nn

from benchmarks.__main__ import README, machine
from benchmarks.extraction import CPU, FIRST, draw_weights, export_onnx
from benchmarks.timing import PROJECT, compare, print_table
from fne.extraction.extractor import build_extractor
from fne.extraction.forward_pass import Network, build_network, layer_values
from fne.extraction.layers import Tap
from fne.extraction.preprocess import CROPS
from fne.extraction.settings import ExtractorSettings
from fne.extraction.weights import Weights, load_weights

ncnn: Any = None
openvino: Any = None
with suppress(ImportError):
    import ncnn
with suppress(ImportError):
    import openvino

NETWORKS = ("vgg16", "timm/resnet50", "timm/convnext_tiny", "timm/vit_base_patch16_224")
EAGER, OURS = "torch, eager", "ours"
BEGIN, END = "<!-- written by opponents -->\n", "<!-- end of opponents -->\n"
HEAD = (
    "| network | program | images/s | over eager | difference | first call | machine |\n" + "|---" * 7 + "|\n"
)

Rows = Callable[[Tensor], np.ndarray]  # from crops (crops, channels, height, width) to (features,)


class Tapped(nn.Module):
    """A network that returns the mean activations of all layers over the crops of an image."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.parts = nn.ModuleList(network.modules.values())
        self.layers = [tap.layer for tap in network.taps]
        self.kept: dict[str, Tensor] = {}
        for tap in network.taps:
            assert tap.call == 0, f"{tap.layer} needs a later call of its module"
            network.module(tap.activated).register_forward_hook(partial(self._keep, tap))

    def forward(self, crops: Tensor) -> Tensor:
        """Return (features,) for (crops, channels, height, width)."""
        values = crops
        for part in self.parts:
            values = part(values)
        return torch.cat([self.kept[layer] for layer in self.layers], dim=1).mean(dim=0)

    def _keep(self, tap: Tap, module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        self.kept[tap.layer] = layer_values(tap, output)


def measure(
    backbone: str,
    weights: Weights | None = None,
    images: int = 2,
    rounds: int = 3,
    compiler: str = "inductor",
) -> list[str]:
    """Print the speed of each program for a network; return a row of the table per program."""
    where = machine()
    weights = weights or load_weights(PROJECT / "weights/random.yaml", backbone)
    settings = ExtractorSettings(
        backbone=backbone,
        activations="post_relu",
        resize="squash",
        crops="ten",
        views="mean",
        layers="all",
        precision="float32",
    )
    extractor = build_extractor(settings, weights, "auto", CPU)
    size, side = weights.input.size, extractor.network.side
    prepared = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(0))
    crops = [CROPS["ten"](image, side) for image in prepared]
    with TemporaryDirectory() as folder:
        programs = _torch(backbone, weights, compiler) | _openvino(backbone, weights, side, Path(folder))
        if backbone == "vgg16":
            programs |= _ncnn(weights, Path(folder))
        variants: dict[str, Callable[[], np.ndarray]] = {
            name: partial(_each, rows, crops) for name, rows in programs.items()
        }
        variants[OURS] = lambda: extractor.rows(prepared).numpy()
        found, first = {}, {}
        for name, run in variants.items():
            start = time.perf_counter()
            found[name] = run()
            first[name] = time.perf_counter() - start
        seconds = compare(variants, rounds)
    print(f"{backbone}, ten crops, {found[OURS].shape[1]:,} features, {torch.get_num_threads()} threads")
    print_table(seconds, EAGER, "images", images)
    lines = []
    for name, rows in found.items():
        difference = np.linalg.norm(rows - found[EAGER]) / np.linalg.norm(found[EAGER])
        print(f"{name}: relative difference {difference:.1e}, the first call took {first[name]:.1f} s")
        median, usual = (statistics.median(seconds[each]) for each in (name, EAGER))
        cells = [
            f"{images / median:.2f}",
            f"{usual / median:.2f}",
            f"{difference:.1e}",
            f"{first[name]:.1f} s",
        ]
        lines.append(f"| {' | '.join([f'`{backbone}`', name, *cells, where])} |")
    return lines


def with_networks(document: str, found: Mapping[str, Sequence[str]]) -> str:
    """Return a document with the rows of some networks replaced or added; those of other networks stay."""
    before, rest = document.split(BEGIN)
    table, after = rest.split(END)
    lines = [
        f"{line}\n"
        for network in NETWORKS
        for line in found.get(
            network, [each for each in table.splitlines() if each.startswith(f"| `{network}` |")]
        )
    ]
    return f"{before}{BEGIN}{HEAD}{''.join(lines)}{END}{after}"


def _each(rows: Rows, crops: Sequence[Tensor]) -> np.ndarray:
    with torch.inference_mode():
        return np.stack([rows(each) for each in crops])


def _torch(backbone: str, weights: Weights, compiler: str) -> dict[str, Rows]:
    network = build_network(backbone, weights, CPU)
    eager = Tapped(copy.deepcopy(network)).to(memory_format=torch.contiguous_format)
    last = Tapped(copy.deepcopy(network)).to(memory_format=torch.channels_last)
    compiled = torch.compile(Tapped(copy.deepcopy(network)), backend=compiler)
    return {
        EAGER: lambda crops: eager(crops).numpy(),
        "torch, channels_last": lambda crops: last(
            crops.contiguous(memory_format=torch.channels_last)
        ).numpy(),
        "torch.compile, channels_last": lambda crops: compiled(
            crops.contiguous(memory_format=torch.channels_last)
        ).numpy(),
    }


def _openvino(backbone: str, weights: Weights, side: int, folder: Path) -> dict[str, Rows]:
    if openvino is None:
        print("openvino is not installed")
        return {}
    model = Tapped(build_network(backbone, weights, CPU)).to(memory_format=torch.contiguous_format)
    export_onnx(model, torch.zeros(10, 3, side, side), folder / "model.onnx")
    core = openvino.Core()
    read = core.read_model(str(folder / "model.onnx"))
    found: dict[str, Rows] = {}
    for name, config in (("float32", {"INFERENCE_PRECISION_HINT": "f32"}), ("default", {})):
        compiled = core.compile_model(read, "CPU", config)
        precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        title = f"OpenVINO, {name}" + (f" ({precision})" if name == "default" else "")
        found[title] = partial(_infer, compiled)
    return found


def _infer(compiled: Any, crops: Tensor) -> np.ndarray:
    rows: np.ndarray = compiled([crops.numpy()])[0]
    return rows.copy()


def _ncnn(weights: Weights, folder: Path) -> dict[str, Rows]:
    """Return VGG16 in ncnn, with its default options; it has no batches, so the crops follow each other."""
    if ncnn is None:
        print("ncnn is not installed")
        return {}
    outputs = write_ncnn(weights, folder)
    net = ncnn.Net()
    net.opt.num_threads = torch.get_num_threads()
    net.load_param(str(folder / "vgg16.param"))
    net.load_model(str(folder / "vgg16.bin"))

    def row(crop: Tensor) -> np.ndarray:
        extractor = net.create_extractor()
        extractor.input("crop", ncnn.Mat(crop.contiguous().numpy()))
        return np.concatenate([np.array(extractor.extract(name)[1]).ravel() for name in outputs])

    return {"ncnn": lambda crops: np.mean([row(crop) for crop in crops], axis=0)}


def write_ncnn(weights: Weights, folder: Path) -> list[str]:
    """Write the layers of VGG16 that have weights as a model of ncnn; return the names of its outputs."""
    with torch.device("meta"):
        model = torchvision.models.vgg16(weights=None)
    lines, values, outputs, last = ["Input crop 0 1 crop"], list[np.ndarray](), list[str](), "crop"
    modules = [(f"features.{name}", each) for name, each in model.features.named_children()]
    modules += [(f"classifier.{number}", model.classifier[number]) for number in (0, 3)]
    for name, module in modules:
        if isinstance(module, nn.MaxPool2d):
            lines.append(f"Pooling {name} 1 1 {last} {name} 0=0 1=2 2=2")
            last = name
        if f"{name}.weight" not in weights.state:
            continue
        weight, bias = (weights.state[f"{name}.{each}"].numpy() for each in ("weight", "bias"))
        # 9=1: with ReLU.
        kind = f"0={len(bias)} 1=1 2={weight.size} 9=1"
        if isinstance(module, nn.Conv2d):
            kind = f"0={len(bias)} 1=3 4=1 5=1 6={weight.size} 9=1"
        title = "Convolution" if isinstance(module, nn.Conv2d) else "InnerProduct"
        lines.append(f"{title} {name} 1 1 {last} {name} {kind}")
        lines.append(f"Split {name}_split 1 2 {name} {name}_next {name}_kept")
        last, kept = f"{name}_next", f"{name}_kept"
        if isinstance(module, nn.Conv2d):
            lines.append(f"Pooling {name}_mean 1 1 {kept} {name}_mean 0=1 4=1")
            kept = f"{name}_mean"
        outputs.append(kept)
        values += [np.zeros(1, dtype=np.float32), weight.ravel(), bias]  # 0: the weights are float32
    blobs = {word for line in lines for word in line.split()[4:] if "=" not in word}
    content = "\n".join(["7767517", f"{len(lines)} {len(blobs)}", *lines])
    (folder / "vgg16.param").write_text(content + "\n")
    (folder / "vgg16.bin").write_bytes(b"".join(np.ascontiguousarray(each).tobytes() for each in values))
    return outputs


@click.command()
@click.option("--network", "networks", multiple=True, default=NETWORKS, show_default=True)
@click.option("--images", default=2, show_default=True, help="Per call.")
@click.option("--rounds", default=3, show_default=True)
def main(networks: tuple[str, ...], images: int, rounds: int) -> None:
    """Measure our extraction and other programs, network by network, and update benchmarks/README.md."""
    for backbone in networks:
        rows = measure(backbone, None, images, rounds)
        README.write_text(with_networks(README.read_text("utf-8"), {backbone: rows}), encoding="utf-8")


def tiny(folder: Path) -> None:
    """Run with the first two layers of VGG16, and with the smallest networks of timm."""
    measure("vgg16", draw_weights("vgg16", FIRST), images=1, rounds=1, compiler="eager")
    for backbone in ("timm/test_resnet", "timm/test_vit"):
        measure(backbone, images=1, rounds=1, compiler="eager")


if __name__ == "__main__":
    main()
