"""`python -m benchmarks.flickr8k_halves`: Flickr8k with its dev images in two halves, in Karpathy's format.

Choosing the epoch and reporting the result on the same images favors methods that fluctuate. Here one half of
the dev images (`val`) chooses, the other half (`test`) is reported. The official test images stay untouched.

    python -m benchmarks.flickr8k_halves Flickr8k.token.txt \
        Flickr_8k.trainImages.txt Flickr_8k.devImages.txt --to data/halves --seed 0
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from fne.core.errors import InputError
from fne.core.files import write_text
from fne.datasets.readers.base import read_text, refuse

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def halves(ids: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Return two random halves of some ids, each in the given order; of an odd number the first is smaller.

    The choice depends on the set of ids and the seed alone, whatever the versions of the libraries.

    Example:
        >>> halves(["a", "b", "c", "d"], seed=0)
        (['a', 'b'], ['c', 'd'])
    """
    shuffled = sorted(ids, key=lambda each: hashlib.sha256(f"{seed} {each}".encode()).digest())
    first = set(shuffled[: len(ids) // 2])
    return [each for each in ids if each in first], [each for each in ids if each not in first]


def karpathy(splits: Mapping[str, Sequence[str]], captions: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return a data set in Karpathy's format, from the ids of each split and the captions of each id."""
    images: list[dict[str, object]] = []
    for split, ids in splits.items():
        for name in ids:
            sentences = [{"raw": caption, "imgid": len(images)} for caption in captions[name]]
            images.append({"filename": name, "imgid": len(images), "split": split, "sentences": sentences})
    return {"dataset": "flickr8k", "images": images}


@click.command()
@click.argument("token_file", type=FILE)
@click.argument("train_ids", type=FILE)
@click.argument("dev_ids", type=FILE)
@click.option("--to", "folder", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--seed", default=0, show_default=True)
def main(token_file: Path, train_ids: Path, dev_ids: Path, folder: Path, seed: int) -> None:
    """Write FOLDER/dataset.json: TRAIN_IDS as train, and two halves of DEV_IDS as val and test."""
    captions = _captions(token_file)
    train, dev = (_ids(path, captions, token_file) for path in (train_ids, dev_ids))
    both = sorted(set(train) & set(dev))
    refuse(dev_ids, [f"{each!r} is also in {train_ids}" for each in both], "an image can have only one split")
    if len(dev) < 2:
        raise InputError(f"{dev_ids}: {len(dev)} of at least two images; two halves need one image each")
    val, test = halves(dev, seed)
    folder.mkdir(parents=True, exist_ok=True)
    dataset = karpathy({"train": train, "val": val, "test": test}, captions)
    write_text(folder / "dataset.json", json.dumps(dataset, ensure_ascii=False, indent=1) + "\n")
    click.echo(f"{folder / 'dataset.json'}: {len(train)} train, {len(val)} val, {len(test)} test images")


def _captions(token_file: Path) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    faults = []
    for number, line in enumerate(read_text(token_file).splitlines(), start=1):
        name, tab, caption = line.partition("\t")
        if tab:
            captions.setdefault(name.rpartition("#")[0], []).append(caption)
        elif line.strip():
            faults.append(f"line {number} {line[:40]!r} is not 'name.jpg#0<TAB>caption'")
    refuse(token_file, faults, "fix or remove these lines")
    return captions


def _ids(path: Path, captions: Mapping[str, Sequence[str]], token_file: Path) -> list[str]:
    ids = read_text(path).split()
    faults = [f"{each!r} has no caption" for each in ids if each not in captions]
    refuse(path, faults, f"name images of {token_file}")
    repeated = [each for each, count in Counter(ids).items() if count > 1]
    refuse(path, [f"{each!r} is listed more than once" for each in repeated], "remove the repetitions")
    return ids


def tiny(folder: Path) -> None:
    """Run with little data."""
    names = [f"{number}.jpg" for number in range(8)]
    (folder / "token.txt").write_text("".join(f"{name}#0\ta dog\n" for name in names))
    for split, ids in (("train", names[:4]), ("dev", names[4:])):
        (folder / f"{split}.txt").write_text("\n".join(ids))
    files = [str(folder / f"{name}.txt") for name in ("token", "train", "dev")]
    main.main([*files, "--to", str(folder / "halves")], standalone_mode=False)


if __name__ == "__main__":
    main()
