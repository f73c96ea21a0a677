r"""Make a table of NUS-WIDE's own files, with which `catalog` reads its images, labels and user tags.

    python -m examples.nus_wide /data/nus-wide        # writes /data/nus-wide/table.jsonl
    dvc exp run -S catalog.root=/data/nus-wide -S extract.weights=weights/imagenet.yaml \
        $(fne preset semantic/tags-S-CNN-RNN-Tag1K --dataset flickr30k) pipelines/tagging/dvc.yaml

The folder holds `ImageList/Imagelist.txt`, `Groundtruth/AllLabels/Labels_*.txt`, `NUS_WID_Tags/All_Tags.txt`
and the images in `Flickr/`. Line n of each list is about image n. As in the paper on semantic regularization,
images without any label are left out, and so are those without a file; 59,347 of 209,347 images are for the
test. The paper does not say which: here they are drawn, and 5 % of the others choose the epoch.
"""

import json
from pathlib import Path
from random import Random

import click

from fne.core.errors import InputError
from fne.core.files import write_text

LIST, LABELS, TAGS, IMAGES = (
    "ImageList/Imagelist.txt",
    "Groundtruth/AllLabels",
    "NUS_WID_Tags/All_Tags.txt",
    "Flickr",
)
TEST, VAL = 59347 / 209347, 0.05  # fractions: of all images, and of the others


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Random seed of the splits.")
def main(folder: Path, seed: int) -> None:
    """Write table.jsonl into the FOLDER of NUS-WIDE."""
    images = [line.replace("\\", "/") for line in lines(folder / LIST)]
    user_tags = lines(folder / TAGS)
    labels: list[list[str]] = [[] for _ in images]
    for file in sorted((folder / LABELS).glob("Labels_*.txt")):
        marks = lines(file)
        require_equal(file, len(marks), len(images))
        for own, mark in zip(labels, marks, strict=True):
            own += [file.stem.removeprefix("Labels_")] * (mark == "1")
    require_equal(folder / TAGS, len(user_tags), len(images))
    rows = []
    for image, own, noted in zip(images, labels, user_tags, strict=True):
        number, *tags = noted.split()
        if Path(image).stem.rpartition("_")[2] != number:
            raise InputError(f"{folder / TAGS}: a line begins with {number}, but {LIST} has {image} there")
        if own and (folder / IMAGES / image).is_file():
            rows.append({"image": f"{IMAGES}/{image}", "tags": own, "user_tags": tags})
    splits = ["test"] * round(TEST * len(rows))
    splits += ["val"] * round(VAL * (len(rows) - len(splits)))
    splits += ["train"] * (len(rows) - len(splits))
    Random(seed).shuffle(splits)  # noqa: S311 - not used for cryptography
    table = [json.dumps(row | {"split": split}) for row, split in zip(rows, splits, strict=True)]
    write_text(folder / "table.jsonl", "".join(f"{line}\n" for line in table))
    click.echo(f"{folder / 'table.jsonl'}: {len(rows)} of {len(images)} images have labels and a file")


def lines(file: Path) -> list[str]:
    """Return the lines of a file of NUS-WIDE that are not empty."""
    if not file.is_file():
        raise InputError(f"{file}: no such file; unpack the archives of NUS-WIDE into one folder")
    return [line.strip() for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]


def require_equal(file: Path, found: int, expected: int) -> None:
    """Refuse a file with another number of lines than the list of images."""
    if found != expected:
        raise InputError(f"{file}: {found} lines, but {LIST} has {expected}; unpack it again")


if __name__ == "__main__":
    main()
