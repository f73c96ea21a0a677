"""A folder of images without captions, with subfolders; all images are in the split `gallery`."""

import os
from collections import Counter
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import check_depth
from fne.datasets.readers.base import EXTENSIONS, Reading, Record, examples

SUFFIXES = frozenset().union(*EXTENSIONS.values())
UNSUPPORTED = frozenset(
    ".arw .avif .cr2 .cr3 .dng .heic .heif .jp2 .jxl .nef .orf .psd .raf .rw2 .svg".split()  # noqa: SIM905
)
CONVERT = "images of unsupported formats, skipped; convert them to JPEG or PNG"
OTHERS = "files that are neither images nor annotations, skipped"


def read_folder(root: Path, annotations: list[Path]) -> Reading:
    """List the image files below `root` by their extension; other files are counted."""
    names = sorted(files_below(root))
    suffixes = {name: Path(name).suffix.lower() for name in names}
    images = [name for name in names if suffixes[name] in SUFFIXES]
    unsupported = [name for name in names if suffixes[name] in UNSUPPORTED]
    others = [name for name in names if suffixes[name] not in SUFFIXES | UNSUPPORTED]
    if unsupported and not images:
        raise InputError(
            f"{root}: {len(unsupported)} images, all of unsupported formats "
            f"({examples(unsupported)}); convert them to JPEG or PNG"
        )
    counts = {
        f"{CONVERT} ({examples(unsupported)})": len(unsupported),
        f"{OTHERS} ({examples(others)})": len(others),
    }
    return Reading([Record(name, "gallery", (), (), root, "file") for name in images], +Counter(counts))


def files_below(root: Path) -> list[str]:
    """Return the paths of all files below `root`, in POSIX form; hidden files and folders are skipped."""
    names = []
    visited: set[tuple[int, int]] = set()
    for folder, subfolders, files in os.walk(root, onerror=_refuse, followlinks=True):
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in visited:  # a link to a folder above
            subfolders.clear()
            continue
        check_depth(Path(folder), len(Path(folder).relative_to(root).parts))
        visited.add((status.st_dev, status.st_ino))
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        names += [
            (Path(folder) / name).relative_to(root).as_posix() for name in files if not name.startswith(".")
        ]
    return names


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror}; check the folder's permissions")
