"""Readers of data set formats, and the choice of the reader and its annotation files.

Every entry of `READERS` is called as `reader(root, annotations)` and returns a `Reading`. With the format
`auto`, the names of the files below the root, in upper or lower case, determine the format. Several matches
are an error that lists them.
"""

from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from fne.core.errors import InputError
from fne.datasets.readers.base import Reader, Reading, case_insensitive, path_fault
from fne.datasets.readers.coco import read_coco
from fne.datasets.readers.flickr import read_flickr
from fne.datasets.readers.folder import read_folder
from fne.datasets.readers.karpathy import read_karpathy
from fne.datasets.readers.table import AUTOMATIC, Columns, read_table
from fne.datasets.readers.webdataset import read_webdataset

AUTO = "auto"
PATTERNS = {
    "karpathy": ("dataset*.json",),
    "flickr": ("*.token.txt", "*.token", "Flickr8k_text/*.token.txt"),
    "coco": ("captions_*.json", "annotations/captions_*.json"),
    "table": ("*.csv", "*.tsv", "*.jsonl", "captions.txt"),
    "webdataset": ("*.tar",),
}
SKIPPED = ("*.lemma.token.txt",)  # Flickr8k's captions a second time, as lemmas
SEVERAL_FILES = ("coco", "webdataset")  # formats with one annotation file per split or shard


def read_dataset(root: Path, format_name: str, annotations: str, columns: Columns = AUTOMATIC) -> Reading:
    """Read the data set below `root`; `annotations` is a file there, a pattern for several, or `auto`."""
    found = find_annotations(root, format_name, annotations)
    if len(found) > 1:
        listing = "; ".join(f"{name}: {_names(root, paths)}" for name, paths in found.items())
        raise InputError(
            f"{root}: more than one format matches ({listing}); set catalog.format to one of them"
        )
    if not found:
        raise InputError(f"{root}: {_nothing_found(root, format_name, annotations)}")
    ((name, paths),) = found.items()
    if len(paths) > 1 and name not in SEVERAL_FILES:
        raise InputError(
            f"{root}: more than one annotation file ({_names(root, paths)}); "
            "set catalog.annotations to one of them"
        )
    readers = READERS | {"table": partial(read_table, columns=columns)}
    if columns.named and name != "table":
        raise InputError(
            f"{root}: catalog.columns names columns of a table, but the data set is read as {name}; set them "
            "to auto"
        )
    reading = readers[name](root, paths)
    if not reading.records:
        raise InputError(f"{', '.join(map(str, paths)) or root}: no images; nothing to catalog")
    return reading


def find_annotations(root: Path, format_name: str, annotations: str) -> dict[str, list[Path]]:
    """Return the annotation files of every format that matches."""
    if format_name == "folder":
        return {"folder": []}
    if annotations != AUTO:
        paths = _named(root, annotations)
        if format_name != AUTO:
            return {format_name: paths}
        return {name: paths for name, patterns in PATTERNS.items() if _matches(paths, patterns)}
    formats = PATTERNS if format_name == AUTO else {format_name: PATTERNS[format_name]}
    listed = {name: _glob(root, [*map(case_insensitive, patterns)]) for name, patterns in formats.items()}
    found = {name: paths for name, paths in listed.items() if paths}
    # An archive beside other annotations, or beside images, is probably what they were unpacked from.
    if format_name == AUTO and len(found) > 1:
        found.pop("webdataset", None)
    if format_name == AUTO and found.keys() <= {"webdataset"} and read_folder(root, []).records:
        return {"folder": []}
    return found


def _named(root: Path, annotations: str) -> list[Path]:
    fault = path_fault(annotations)
    if fault:
        raise InputError(f"catalog.annotations: {annotations!r} {fault}; use a file below {root}")
    paths = [root / annotations] if (root / annotations).is_file() else _glob(root, [annotations])
    if not paths:
        raise InputError(
            f"catalog.annotations: no file {annotations!r} below {root}; use an existing file, or auto"
        )
    return paths


def _glob(root: Path, patterns: list[str]) -> list[Path]:
    paths = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(
        path
        for path in paths
        if not path.name.startswith(".") and not any(fnmatch(path.name.lower(), each) for each in SKIPPED)
    )


def _matches(paths: list[Path], patterns: tuple[str, ...]) -> bool:
    names = [case_insensitive(pattern.rpartition("/")[2]) for pattern in patterns]
    return all(any(fnmatch(path.name, name) for name in names) for path in paths)


def _names(root: Path, paths: list[Path]) -> str:
    return ", ".join(str(path.relative_to(root)) for path in paths)


def _nothing_found(root: Path, format_name: str, annotations: str) -> str:
    if annotations != AUTO:
        known = ", ".join(PATTERNS)
        return (
            f"the format of {annotations!r} is not clear from its name; set catalog.format to one of {known}"
        )
    formats = PATTERNS if format_name == AUTO else {format_name: PATTERNS[format_name]}
    looked_for = "; ".join(f"{name}: {', '.join(patterns)}" for name, patterns in formats.items())
    listing = sorted(path.name for path in root.iterdir())
    content = ", ".join(listing[:5] + ["…"] * (len(listing) > 5)) or "nothing"
    return (
        f"no data set found; looked for {looked_for}{'; image files' * (format_name == AUTO)}; "
        f"the folder contains {content}; set catalog.root, or catalog.format and catalog.annotations"
    )


READERS: dict[str, Reader] = {
    "karpathy": read_karpathy,
    "flickr": read_flickr,
    "coco": read_coco,
    "table": read_table,
    "folder": read_folder,
    "webdataset": read_webdataset,
}
