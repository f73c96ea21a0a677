"""`python -m benchmarks.idea_to_number`: how long it takes from a changed key to a result, with DVC.

In a clone of the project, with features of other programs:

- another `embed.*` key: `dvc exp run baseline` until the sum of recalls and its interval are written;
- `dvc repro` without changes;
- `dvc exp run` without changes, with a made-up catalog of COCO's size.

Each line has the seconds that passed and those that one core computed: on a busy machine, only the second
number can be compared.

    python -m benchmarks.idea_to_number /data/flickr8k vgg16.h5
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from benchmarks.drawn import draw_dataset, draw_features
from fne.core.settings import put

ROOT = Path(__file__).parents[1]
COCO = 123_287  # images
CAPTION = "a made-up sentence about image number {} that has some words"


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder, with the programs of this environment.

    Raises:
        click.ClickException: with its output, if it fails.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def timed(title: str, folder: Path, *command: str) -> None:
    """Run a command and print how long it took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run(folder, *command)
    after, passed = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    click.echo(f"{title:<52} {passed:>8.1f} {computed:>8.1f}")


def change(folder: Path, values: Mapping[str, Any]) -> None:
    """Change parameters of a clone and commit them, as `dvc exp run` starts from a commit."""
    path, yaml = folder / "params.yaml", YAML()
    content = yaml.load(path)
    for key, value in values.items():
        put(content, key, value)
    yaml.dump(content, path)
    commit(folder)


def commit(folder: Path) -> None:
    """Commit everything that Git does not ignore."""
    run(folder, "git", "add", "-A")
    run(folder, "git", "-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "benchmark")


def clone(folder: Path) -> Path:
    """Return a clone of the project, whose DVC sends nothing."""
    run(ROOT, "git", "clone", "-q", str(ROOT), str(folder))
    run(folder, "dvc", "config", "core.analytics", "false")
    run(folder, "dvc", "config", "core.check_update", "false")
    return folder


def write_coco(folder: Path, images: int) -> None:
    """Write a data set of many images with five captions each, in Karpathy's format."""
    splits = ["test" if number < images // 25 else "train" for number in range(images)]
    splits[-1] = "val"
    content = [
        {
            "filename": f"{number:012d}.jpg",
            "split": split,
            "sentences": [{"raw": CAPTION.format(5 * number + caption)} for caption in range(5)],
        }
        for number, split in enumerate(splits)
    ]
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text(json.dumps({"images": content}), encoding="utf-8")


def measure_idea(folder: Path, dataset: Path, features: Path, embed: Sequence[str]) -> None:
    """Print how long another embedding and an unchanged project take."""
    run(folder, "fne", "import", str(features), "--to", "features/imported")
    change(
        folder,
        {
            "catalog.root": str(dataset),
            "catalog.images": "none",
            "embed.source": "features/imported",
            "embed.layers": "all",
            "evaluate.split": "val",
        },
    )
    run(folder, "dvc", "repro", "baseline")
    commit(folder)
    timed(
        f"dvc exp run baseline -S {' -S '.join(embed)}",
        folder,
        "dvc",
        "exp",
        "run",
        "baseline",
        *_options(embed),
    )
    found = next(iter(json.loads((folder / "metrics/baseline.json").read_text()).values()))
    click.echo(f"  rsum {found['rsum']:.1f} ({found['rsum_low']:.1f} to {found['rsum_high']:.1f})")
    timed("dvc repro baseline, without changes", folder, "dvc", "repro", "baseline")
    timed("dvc status", folder, "dvc", "status")
    timed("dvc --version: DVC itself starts", folder, "dvc", "--version")


def measure_overhead(folder: Path, images: int) -> None:
    """Print how long DVC takes for an experiment in which no stage runs, with a large catalog."""
    write_coco(folder / "data/coco", images)
    run(folder, "dvc", "add", "-q", "data/coco")
    change(folder, {"catalog.root": "data/coco", "catalog.images": "none"})
    timed(f"catalog of {images:,} images", folder, "dvc", "repro", "catalog")
    commit(folder)
    timed("dvc exp run catalog, without changes", folder, "dvc", "exp", "run", "catalog")
    timed("dvc exp run --temp catalog, without changes", folder, "dvc", "exp", "run", "--temp", "catalog")


def _options(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in ("-S", value)]


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path, exists=True, resolve_path=True))
@click.argument("features", type=click.Path(path_type=Path, exists=True, resolve_path=True))
@click.option(
    "--embed", multiple=True, default=["embed.kind=blocks"], show_default=True, help="What changes."
)
@click.option("--images", default=COCO, show_default=True, help="Of the large catalog; 0: leave it out.")
def main(dataset: Path, features: Path, embed: tuple[str, ...], images: int) -> None:
    """Measure with the captions of DATASET and the FEATURES of its images."""
    click.echo(f"{'':<52} {'passed':>8} {'one core':>8}")
    with tempfile.TemporaryDirectory() as folder:
        measure_idea(clone(Path(folder, "idea")), dataset, features, embed)
        if images:
            measure_overhead(clone(Path(folder, "coco")), images)


def tiny(folder: Path) -> None:
    """Run with little data."""
    dataset = draw_dataset(folder, images=40)
    files = [str(dataset), str(draw_features(dataset))]
    main.main([*files, "--images", "30"], standalone_mode=False)


if __name__ == "__main__":
    main()
