"""The original format of Flickr8k and Flickr30k: a token file and one list per split.

The token file has lines `name.jpg#0<TAB>caption`. The lists beside it have one image name per line; those of
Flickr30k omit the `.jpg`. Images that are in no list are left out and counted.
"""

from collections import Counter
from pathlib import Path

from fne.core.errors import InputError
from fne.datasets.readers.base import Reading, Record, case_insensitive, normalize_path, read_text, refuse

LISTS = {
    "train": ("*trainImages.txt", "train.txt"),
    "val": ("*devImages.txt", "*valImages.txt", "dev.txt", "val.txt"),
    "test": ("*testImages.txt", "test.txt"),
}
UNLISTED = "images in no split list, left out"


def read_flickr(root: Path, annotations: list[Path]) -> Reading:
    """Read a token file and the split lists in the same folder."""
    (source,) = annotations
    captions = _captions(source)
    records: dict[str, Record] = {}
    for split, listing in _listings(source.parent).items():
        records |= _listed(split, listing, captions, records)
    counts = Counter({UNLISTED: len(captions.keys() - records.keys())})
    return Reading(list(records.values()), counts)


def _captions(source: Path) -> dict[str, list[object]]:
    captions: dict[str, list[object]] = {}
    faults = []
    for number, line in _lines(source):
        token, tab, caption = line.partition("\t")
        name, _, position = token.rpartition("#")
        if not tab or not name or not position.strip().isdecimal():
            faults.append(f"line {number} {line[:40]!r} is not 'name.jpg#0<TAB>caption'")
        else:
            captions.setdefault(normalize_path(name), []).append(caption)
    refuse(source, faults, "fix or remove these lines")
    return captions


def _listings(folder: Path) -> dict[str, Path]:
    found = {
        split: [path for pattern in patterns for path in sorted(folder.glob(case_insensitive(pattern)))]
        for split, patterns in LISTS.items()
    }
    for split, paths in found.items():
        if len(paths) > 1:
            names = ", ".join(path.name for path in paths)
            raise InputError(f"{folder}: several lists for split '{split}': {names}; keep only one")
    if not any(found.values()):
        looked_for = ", ".join(pattern for patterns in LISTS.values() for pattern in patterns)
        raise InputError(
            f"{folder}: no split list in the folder of the token file; looked for {looked_for}; "
            "add trainImages.txt, devImages.txt and testImages.txt, with one image name per line"
        )
    return {split: paths[0] for split, paths in found.items() if paths}


def _listed(
    split: str, listing: Path, captions: dict[str, list[object]], others: dict[str, Record]
) -> dict[str, Record]:
    records: dict[str, Record] = {}
    faults = []
    for number, line in _lines(listing):
        name = normalize_path(line.strip())
        if name not in captions and not Path(name).suffix:
            name = f"{name}.jpg"
        if name in others:
            faults.append(f"line {number} {name!r} is also in {others[name].source.name}")
        elif name in records:
            faults.append(f"line {number} {name!r} is also on {records[name].place}")
        else:
            records[name] = Record(name, split, tuple(captions.get(name, ())), (), listing, f"line {number}")
    refuse(listing, faults, "an image can have only one split; remove the other entry")
    return records


def _lines(path: Path) -> list[tuple[int, str]]:
    lines = enumerate((line.removesuffix("\r") for line in read_text(path).split("\n")), start=1)
    return [(number, line) for number, line in lines if line.strip()]
