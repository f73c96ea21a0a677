"""The location of a data set: its folder, its image files, and whether Git or DVC tracks it."""

import subprocess
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fne.core.dvc import tracked_path
from fne.core.errors import InputError
from fne.core.files import missing_path
from fne.core.terminal import say
from fne.datasets.readers import AUTO
from fne.datasets.readers.base import path_fault
from fne.datasets.readers.folder import files_below
from fne.store.catalog import image_root, is_annotation_file
from fne.store.images import image_exists

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
# The number of files that are looked for.
SAMPLE = 100


def dataset_root(root: str, format_name: str, annotations: str) -> tuple[Path, str]:
    """Return the folder of a data set and its annotations; `root` is the folder or the annotation file."""
    path = Path(root)
    if not path.is_dir() and not path.is_file():
        raise missing_path(
            f"catalog.root: {root!r}",
            "set it to the folder of your data set, or to its annotation file; inside the repository "
            "run `dvc add` first, otherwise use an absolute path",
            "file or folder",
        )
    if not is_annotation_file(path):
        return path, annotations
    fault = file_fault(format_name, annotations)
    if fault:
        raise InputError(f"catalog.root: {root!r} {fault}")
    folder = image_root(path)
    return folder, path.relative_to(folder).as_posix()


def file_fault(format_name: str, annotations: str) -> str | None:
    """Return which setting contradicts a `catalog.root` that is an annotation file, or None."""
    if annotations != AUTO:
        return f"is a file, but catalog.annotations is {annotations!r}; set catalog.annotations to auto"
    if format_name == "folder":
        return "is a file, but catalog.format is 'folder'; set root to the folder, or format to auto"
    return None


def image_folder(root: Path, images: str, names: Sequence[str]) -> str:
    """Return the folder below `root`, in POSIX form, that contains the files `names`.

    With `images: auto`, it is the entry of `FOLDERS` that contains most of a sample of the files.
    """
    if images != AUTO and path_fault(images):
        raise InputError(f"catalog.images: {images!r} {path_fault(images)}; use a folder below {root}")
    folders = FOLDERS if images == AUTO else (images,)
    sample = names[:: max(1, len(names) // SAMPLE)]
    found = {folder: sum(image_exists(root / folder / name) for name in sample) for folder in folders}
    best = max(folders, key=lambda folder: found[folder])
    if not found[best]:
        tried = ", ".join(folder for folder in folders if (root / folder).is_dir()) or "no existing folder"
        raise InputError(
            f"{root}: none of the images was found, for example {sample[0]!r}; looked in {tried}; "
            f"{_advice(root, sample)}"
        )
    return best


def warn_if_untracked(root: Path, folder: Path) -> None:
    """Warn if a data set is inside the repository and tracked neither by Git nor by DVC.

    `dvc exp run --temp` and `--queue` copy only tracked files. If `root` is a file, others in `folder` must
    be tracked too.
    """
    # Only the folder is resolved, because the file may be a link into DVC's cache.
    if _untracked(folder.resolve(), root.parent.resolve() / root.name):
        say(
            f"Warning: catalog.root: {folder} is tracked neither by Git nor by DVC, so `dvc exp run --temp` "
            f"and `--queue` will not find it; run `dvc add {folder}`, or use a folder outside the repository",
            err=True,
        )


def _advice(root: Path, names: Sequence[str]) -> str:
    """Return how to fix missing files: their actual folder or spelling if they are found below `root`."""
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
            return f"{file!r} differs only in {what}; rename the files, or fix the annotations"
    return "set catalog.images to their folder below the root, or to none if the features are imported"


def _ends(file: str, name: str) -> bool:
    return f"/{file}".endswith(f"/{name}")


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return _composed(_composed(name).casefold())


def _untracked(folder: Path, root: Path) -> bool:
    top = _git("rev-parse", "--show-toplevel")
    if top is None:
        return False
    repository = Path(top).resolve()
    if not folder.is_relative_to(repository):
        return False
    listed = (_git("ls-files", "-z", "--full-name", "--", str(folder)) or "").split("\0")
    if any(name and repository / name != root for name in listed):
        return False
    return tracked_path(folder, repository) is None


def _git(*arguments: str) -> str | None:
    """Return the output of git, or None without git or outside a repository."""
    try:
        command = ["git", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # constant arguments
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()
