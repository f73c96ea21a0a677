"""What is asked for: a sentence, an image of the catalog, or an image file that it does not have."""

import hashlib
import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from fne.core.errors import InputError
from fne.datasets.folder import SUFFIXES
from fne.retrieval.project import Catalog


@dataclass(frozen=True)
class Known:
    """An image of the catalog; where the catalog has only its features, there is no file."""

    id: str
    file: Path | None
    sha256: str | None


@dataclass(frozen=True)
class New:
    """An image file that the catalog does not have."""

    file: Path
    sha256: str
    id: None = None


Picture = Known | New


def understand(argument: str, catalog: Catalog, images_only: bool = False) -> Picture | str:
    """Tell what an argument of `fne search` means: an image, or a sentence.

    A file that exists is an image, and so is an id of the catalog; anything else is a
    sentence, unless it looks like the name of an image.

    Raises:
        InputError: if it can be told neither way.
    """
    known = argument in catalog.captioned
    if os.path.isfile(argument):  # noqa: PTH113 - a sentence may be too long for the name of a file
        return _file(Path(argument), known, catalog)
    if known:
        image = catalog.images.get(argument)
        return Known(argument, catalog.file(argument), image.sha256 if image else None)
    if not images_only and not _looks_like_a_name(argument):
        return argument
    near = [get_close_matches(name, catalog.ids, n=1) for name in (argument, Path(argument).name)]
    close = [*near[0], *near[1]]
    hint = f"did you mean {close[0]!r}?" if close else f"ids look like {catalog.ids[0]!r}"
    advice = "--by compares images" if images_only else "to ask with a sentence, write it in plain words"
    raise InputError(
        f"{argument!r} is neither a file nor the id of an image of the catalog ({hint}); {advice}"
    )


def _looks_like_a_name(argument: str) -> bool:
    return Path(argument).suffix.lower() in SUFFIXES or ("/" in argument and " " not in argument)


def _file(path: Path, known: bool, catalog: Catalog) -> Picture:
    # With Pillow, which takes a while to import and is needless for a sentence.
    from fne.store.decode import UndecodableError, decode_bytes, read_bytes

    try:
        content = read_bytes(path)
        decode_bytes(content)
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; name an image file, or ask with a sentence") from None
    sha256 = hashlib.sha256(content).hexdigest()
    same = [image.id for image in catalog.images.values() if image.sha256 == sha256]
    if known and str(path) not in same:
        raise InputError(
            f"'{path}' is a file here and the id of another image of the catalog; "
            f"write ./{path} for the file, or go to another folder to mean the catalog's"
        )
    if not same:
        return New(path, sha256)
    return Known(str(path) if known else same[0], path, sha256)
