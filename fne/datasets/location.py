"""Where the image files of a data set are."""

import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fne.core.errors import InputError
from fne.datasets.folder import files_below
from fne.datasets.names import unsafe
from fne.datasets.root import image_root, is_annotation_file

AUTO = "auto"
NONE = "none"
FOLDERS = (
    ".",
    "images",
    "Images",
    "Flicker8k_Dataset",
    "Flicker8k_images",
    "Flickr8k_Dataset",
    "Flickr8k_images",
    "flickr30k-images",
    "flickr30k_images",
)
SAMPLE = 100


def dataset_root(root: str, format_name: str, annotations: str) -> tuple[Path, str]:
    """Return the data set's folder and its annotations: those of the file, if `catalog.root` names one.

    Args:
        root: the data set's folder, or its annotation file.
        format_name: a name of a reader, or `auto`.
        annotations: a file below the folder, a pattern for several, or `auto`.

    Raises:
        InputError: if there is no such folder or file, or if a file is named and something else is, too.
    """
    path = Path(root)
    if not path.is_dir() and not path.is_file():
        raise InputError(
            f"catalog.root: {root!r} does not exist; set it to the folder of your data set, or to its "
            "annotation file; inside the repository `dvc add` it first, anywhere else use an absolute path"
        )
    if not is_annotation_file(path):
        return path, annotations
    fault = file_fault(format_name, annotations)
    if fault:
        raise InputError(f"catalog.root: {root!r} {fault}")
    folder = image_root(path)
    return folder, path.relative_to(folder).as_posix()


def file_fault(format_name: str, annotations: str) -> str | None:
    """Say what is wrong with other settings where `catalog.root` is an annotation file, or return None."""
    if annotations != AUTO:
        return f"is a file, and catalog.annotations names {annotations!r}; set catalog.annotations to auto"
    if format_name == "folder":
        return "is a file, and catalog.format 'folder' reads none; name the folder, or set the format to auto"
    return None


def image_folder(root: Path, images: str, names: Sequence[str]) -> str:
    """Return the folder below `root`, in POSIX form, that holds the files `names`.

    With `images: auto` this is the usual folder that holds most of a sample of them.

    Raises:
        InputError: if the sample is in none of the folders.
    """
    if images != AUTO and unsafe(images):
        raise InputError(f"catalog.images: {images!r} {unsafe(images)}; name a folder below {root}")
    folders = FOLDERS if images == AUTO else (images,)
    sample = names[:: max(1, len(names) // SAMPLE)]
    found = {folder: sum(os.path.isfile(root / folder / name) for name in sample) for folder in folders}  # noqa: PTH113
    best = max(folders, key=lambda folder: found[folder])
    if not found[best]:
        tried = ", ".join(folder for folder in folders if (root / folder).is_dir()) or "no folder at all"
        raise InputError(
            f"{root}: none of the images is there, such as {sample[0]!r}; looked in {tried}; "
            f"{_advice(root, sample)}"
        )
    return best


def _advice(root: Path, names: Sequence[str]) -> str:
    """Say in which folder the files are, or how else they are spelled, as far as they can be found."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for file in files_below(root):
        alike[_folded(PurePosixPath(file).name)].append(file)
    pairs = [(name, file) for name in names for file in alike[_folded(PurePosixPath(name).name)]]
    folders = Counter(file[: -len(name)].rstrip("/") for name, file in pairs if _ends(file, name))
    if folders:
        return f"set catalog.images to {folders.most_common(1)[0][0] or '.'!r}"
    for name, file in pairs:
        if _ends(_folded(file), _folded(name)):
            what = (
                "Unicode normalization" if _ends(_composed(file), _composed(name)) else "upper and lower case"
            )
            return f"{file!r} differs only in {what}; rename the files, or change the names"
    return "set catalog.images to their folder below the root, or to none if features come from elsewhere"


def _ends(file: str, name: str) -> bool:
    return f"/{file}".endswith(f"/{name}")


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return _composed(_composed(name).casefold())
