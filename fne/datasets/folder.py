"""A plain folder of photographs, at any depth, without captions: all for the gallery."""

import os
from pathlib import Path

from fne.core.errors import InputError
from fne.datasets.names import EXTENSIONS
from fne.datasets.records import Reading, Record

SUFFIXES = frozenset().union(*EXTENSIONS.values())


def read_folder(root: Path, annotations: list[Path]) -> Reading:
    """List the image files below `root`, by their extension; hidden files and folders are passed over."""
    records = [Record(name, "gallery", (), (), root, "file") for name in sorted(_image_names(root))]
    return Reading(records)


def _image_names(root: Path) -> list[str]:
    names = []
    visited: set[tuple[int, int]] = set()
    for folder, subfolders, files in os.walk(root, onerror=_refuse, followlinks=True):
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in visited:  # a link back to a folder above
            subfolders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        names += [
            (Path(folder) / name).relative_to(root).as_posix()
            for name in files
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return names


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror}; check the folder's permissions")
