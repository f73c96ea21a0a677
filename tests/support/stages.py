"""A tiny project whose activations are made up, for stages to run on in-process."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, Image, write_captions, write_images
from fne.store.checksums import parse_metrics
from fne.store.layout import Layer
from tests.support.features import write_store
from tests.support.imports import ROOT
from tests.support.projects import SMALL, change_params

SPLITS = ["train"] * 12 + ["val"] * 4 + ["test"] * 4
IDS = [f"{number:02d}.png" for number in range(len(SPLITS))]
LAYERS = (Layer("conv", 2), Layer("fc7", 4))
PIPELINES = [ROOT / "dvc.yaml", *ROOT.glob("pipelines/*/dvc.yaml"), *ROOT.glob("pipelines/*/pipeline.yaml")]
# The arguments of every stage, as its pipeline gives them.
COMMANDS: dict[str, str] = {
    name: stage["cmd"].split(maxsplit=3)[3].strip()
    for file in PIPELINES
    for name, stage in YAML(typ="safe").load(file)["stages"].items()
}

Run = Callable[..., Result]


def write_activations(
    seed: int = 0, changed: dict[tuple[str, int], float] | None = None, folder: str = "features/activations",
    layers: Sequence[Layer] = LAYERS, settings: dict[str, object] | None = None,
    lineage: Lineage | None = None, equal_views: bool = False,
) -> str:  # fmt: skip
    """Write activations of a network with two layers, some of them changed, by image and column.

    With `equal_views`, layers are views of three features, all alike.

    Returns:
        the digest of the store.
    """
    drawn = np.random.default_rng(seed).normal(size=(len(IDS), 6)).astype(np.float32)
    if equal_views:
        drawn = np.tile(drawn[:, :3], len(layers))
    values = dict(zip(IDS, drawn, strict=True))
    for (image, column), value in (changed or {}).items():
        values[image][column] = value
    made_with = {"seed": seed} | (settings or {})
    written = write_store(
        Path(folder), "activations", layers, values, shards=2, settings=made_with, lineage=lineage
    )
    return written.artifact.digest


def write_catalog(splits: list[str] = SPLITS, word: str = "number") -> None:
    """Write captions, two for each image that is not in the gallery, and a list of image files."""
    write_images(Path("data/images.jsonl"), [Image(each, each, "0" * 64, 9, 1, 1) for each in IDS])
    write_captions(
        Path("data/captions.jsonl"),
        [
            Captioned(each, split, () if split == "gallery" else (f"{word} {each[:2]}", f"a {each[:2]}."), ())
            for each, split in zip(IDS, splits, strict=True)
        ],
    )


def write_tiny(folder: Path) -> None:
    """Write parameters, activations and a catalog."""
    shutil.copy(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "weights", folder / "weights")
    change_params(folder, SMALL | {"train": SMALL["train"] | {"epochs": 2, "embed_dim": 8, "word_dim": 4}})
    with chdir(folder):
        write_activations()
        write_catalog()


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """Run stages by name, in a folder with activations and a catalog."""
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path)
    return invoke


def invoke(*stages: str) -> Result:
    """Run stages by name in the current folder, up to the first one that fails."""
    for stage in stages:
        result = CliRunner().invoke(import_module(f"stages.{stage}").main, COMMANDS[stage].split())
        if result.exit_code:
            break
    return result


def refusal(*stages: str) -> str:
    """Run stages of which the last one must refuse something; return what it says."""
    return refused(invoke(*stages))


def refused(result: Result) -> str:
    """Return what a command that must have refused something says: its last line, without `Error: `."""
    assert result.exit_code == 2, result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: "), line
    return line.removeprefix("Error: ")


def metrics() -> dict[str, object]:
    """Read the metrics that `evaluate` wrote."""
    found: dict[str, object] = parse_metrics(Path("metrics/retrieval.json").read_bytes())
    return found
