"""What all readers share: their result, strict parsing of text and JSON, and names of files.

A reader reads annotations and never opens an image. It returns captions unchanged, whatever their type, and
the split names of the data set: `fne.datasets.read` checks them for all formats.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fne.core.errors import InputError
from fne.core.files import check_regular

SHOWN = 5
LARGEST = 2**63 - 1
EXTENSIONS = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"},
    "PNG": {".png"},
    "GIF": {".gif"},
    "BMP": {".bmp", ".dib"},
    "TIFF": {".tif", ".tiff"},
    "WEBP": {".webp"},
    "PPM": {".ppm", ".pgm", ".pbm", ".pnm"},
}

_REDUNDANT = re.compile(r"(^\.|(?<=/)\.?)/")

AnyModel = TypeVar("AnyModel", bound=BaseModel)


@dataclass(frozen=True)
class Record:
    """One image of a data set."""

    id: str  # the name of the image in the data set, a path below the image folder
    split: str | None  # the name of the split, or None if the data set has no splits
    captions: tuple[object, ...]
    tags: tuple[str, ...]  # sorted names of the visible objects
    source: Path  # the file that lists the image
    place: str  # the position in that file, for messages
    user_tags: tuple[str, ...] = ()  # sorted noisy tags that users gave: more information, never the truth


@dataclass(frozen=True)
class Reading:
    """The records of a data set, and counts of what its reader left out, by description."""

    records: list[Record]
    counts: Counter[str] = field(default_factory=Counter)


# From the folder of a data set and its annotation files.
Reader = Callable[[Path, list[Path]], Reading]


def refuse(place: object, faults: Sequence[str], advice: str) -> None:
    """Raise an InputError with all faults of one place, if there are any."""
    if faults:
        raise InputError(f"{place}: {shorten(faults)}; {advice}")


def shorten(items: Sequence[str]) -> str:
    """Return the first items as text, and the number of the others."""
    more = [f"and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return "; ".join([*items[:SHOWN], *more])


def examples(names: Sequence[str]) -> str:
    """Return the first three names as text, with an ellipsis if there are more."""
    return ", ".join([*map(repr, names[:3]), *["…"] * (len(names) > 3)])


def sorted_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct tags in order, without empty ones."""
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte order mark."""
    try:
        check_regular(path)
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the file") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, place: str) -> Any:
    """Return the content of a JSON text; unlike Python, refuse NaN, huge numbers and repeated keys."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError:
        raise InputError(f"{place}: invalid JSON: nested too deeply; fix the file") from None
    except ValueError as error:
        raise InputError(f"{place}: invalid JSON: {error}; fix the file") from None


def as_model(content: Any, model: type[AnyModel], place: str) -> AnyModel:
    """Return parsed JSON as a model."""
    try:
        return model.model_validate(content, strict=True)
    except ValidationError as error:
        refuse(place, [_describe(detail) for detail in error.errors(include_url=False)], "fix the file")
        raise


def normalize_path(name: str) -> str:
    """Return a path without `./` and repeated slashes.

    Example:
        >>> normalize_path("./train//a.jpg")
        'train/a.jpg'
    """
    return _REDUNDANT.sub("", name)


def case_insensitive(pattern: str) -> str:
    """Return a pattern that matches file names in upper and lower case.

    Example:
        >>> case_insensitive("*.csv")
        '*.[cC][sS][vV]'
    """
    return re.sub("[a-zA-Z]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", pattern)


def path_fault(name: str) -> str | None:
    """Return why a path is not a safe path below its folder, or None.

    Links on the disk are followed: a DVC cache of type symlink replaces every tracked image by a link.

    Example:
        >>> path_fault("train/a.jpg")
        >>> path_fault("a/../../x.jpg")
        'points outside the image folder'
    """
    if not name.strip():
        return "is empty"
    if "\0" in name:
        return "contains a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "is not valid Unicode"
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive or name.startswith("\\"):
        return "is an absolute path"
    if ".." in name.replace("\\", "/").split("/"):
        return "points outside the image folder"
    return None


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        content[key] = value
    return content


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > LARGEST:
        raise ValueError(f"the number {digits[:20]}{'…' if len(digits) > 20 else ''} is too large")
    return int(digits)


def _describe(detail: ErrorDetails) -> str:
    *outer, last = [str(part) for part in detail["loc"]] or ["the file"]
    if detail["type"] == "missing":
        return f"{'.'.join(outer) or 'the object'} has no '{last}'"
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    if detail["type"] in ("model_type", "dict_type"):  # pydantic's message contains the name of the class
        message = "input should be a JSON object"
    return f"{'.'.join([*outer, last])}: {message}, got {shown}"
