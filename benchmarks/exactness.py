"""How exact the algorithms of the extraction are.

`python -m benchmarks.exactness PHOTOGRAPHS WEIGHTS` computes the rows of photographs with every algorithm and
compares them with those of the plain algorithm, which computes every crop in every layer. It prints the
largest relative difference of a row, and counts the ternary values that flip.

Each feature is standardized by its mean and deviation over these photographs in the plain algorithm, and
discretized with the thresholds of `params.yaml`. Only convolutions are compared, for which weights without
fully connected layers are enough, unless `--all-layers` is given.
"""

from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image

from benchmarks.drawn import draw_dataset
from benchmarks.extraction import write_weights
from benchmarks.precision import CONVOLUTIONS, ternary
from benchmarks.timing import PROJECT
from fne.core.settings import load_params
from fne.extraction.extractor import ALGORITHMS
from fne.extraction.forward_pass import build_network
from fne.extraction.preprocess import normalize, squash
from fne.extraction.settings import ALL
from fne.extraction.weights import load_weights

REFERENCE = "plain"


@click.command()
@click.argument("photographs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("weights", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--count", default=60, show_default=True, help="The number of photographs, in order of name.")
@click.option("--input", "fed", default="auto", show_default=True, help="As extract.input of params.yaml.")
@click.option("--all-layers", is_flag=True, help="Compare the fully connected layers too.")
@click.option("--layer", "chosen", multiple=True, default=CONVOLUTIONS, help="Only these; repeatable.")
@click.option(
    "--algorithm",
    "names",
    multiple=True,
    default=[name for name in ALGORITHMS if name != REFERENCE],
    show_default=True,
    type=click.Choice(list(ALGORITHMS)),
)
def main(
    photographs: Path,
    weights: Path,
    count: int,
    fed: str,
    all_layers: bool,
    chosen: tuple[str, ...],
    names: tuple[str, ...],
) -> None:
    """Compare the algorithms on PHOTOGRAPHS with the WEIGHTS of VGG16."""
    paths = sorted(path for path in photographs.iterdir() if path.suffix in (".jpg", ".jpeg", ".png"))[:count]
    loaded = load_weights(weights, "vgg16", fed)
    network = build_network("vgg16", loaded, torch.device("cpu"), layers=ALL if all_layers else chosen)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in (REFERENCE, *names)}
    compute = {name: ALGORITHMS[name](network, "ten") for name in rows}
    for path in paths:
        image = normalize(squash(Image.open(path).convert("RGB")), loaded.input)
        with torch.inference_mode():
            for name, computed in rows.items():
                computed.append(compute[name](image[None])[0].double().numpy())
    exact = np.stack(rows.pop(REFERENCE))
    low, high = (load_params(PROJECT / "params.yaml")["embed"][key] for key in ("low", "high"))
    expected = ternary(exact, exact, low, high)
    print(f"{len(paths)} photographs, {expected.size:,} values, thresholds {low} and {high}")
    for name, computed in rows.items():
        found = np.stack(computed)
        differences = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
        flipped = (ternary(found, exact, low, high) != expected).sum()
        print(
            f"{name}: relative difference at most {differences.max():.2e}, {differences.mean():.2e} on "
            f"average; {flipped:,} flipped"
        )


def tiny(folder: Path) -> None:
    """Run with two drawn images and two layers."""
    photographs = draw_dataset(folder) / "images"
    few = ["--count", "2", "--input", "torchvision", "--layer", "conv1_1", "--layer", "conv1_2"]
    main.main([str(photographs), str(write_weights(folder)), *few], standalone_mode=False)


if __name__ == "__main__":
    main()
