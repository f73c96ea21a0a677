"""Names of files in a data set: their one spelling, which are refused, and which belong to images.

The check looks at the name only. Links on the disk are followed: a linked DVC cache
makes a link of every tracked image.
"""

import re
from pathlib import PurePosixPath, PureWindowsPath

EXTENSIONS = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"},
    "PNG": {".png"},
    "GIF": {".gif"},
    "BMP": {".bmp", ".dib"},
    "TIFF": {".tif", ".tiff"},
    "WEBP": {".webp"},
    "PPM": {".ppm", ".pgm", ".pbm", ".pnm"},
}

_IDLE = re.compile(r"(^\.|(?<=/)\.?)/")


def normal(name: str) -> str:
    """Return the one spelling of a name, without `./` and doubled slashes.

    Example:
        >>> normal("./train//a.jpg")
        'train/a.jpg'
    """
    return _IDLE.sub("", name)


def any_case(pattern: str) -> str:
    """Return a pattern of file names that also matches other upper and lower case.

    Example:
        >>> any_case("*.csv")
        '*.[cC][sS][vV]'
    """
    return re.sub("[a-zA-Z]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", pattern)


def unsafe(name: str) -> str | None:
    """Say what is wrong with a name that must stay below its folder, or return None.

    Example:
        >>> unsafe("train/a.jpg")
        >>> unsafe("a/../../x.jpg")
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
