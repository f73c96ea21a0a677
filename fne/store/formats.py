"""How a file of ours says what it is, and how a single changed bit in it is noticed.

Every artifact names its format and version: a newer one is refused, an older one is read.

A text file is one JSON object, or a JSON object followed by lines. That object's first
entry is a seal, the SHA-256 of all that follows it in the file, so the file stays JSON
for other tools. Text files of version 1 have no seal. An HDF5 file ends with its seal,
which HDF5 passes over.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.store.files import text_digest

SEALED_SINCE = 2
OPENING = b'{"sha256": "'
ENDING = b"fne-sha256:"
HEX = 64


@dataclass(frozen=True)
class Format:
    """A kind of file, and the newest version of it that this code writes and reads."""

    name: str
    version: int

    def header(self) -> dict[str, Any]:
        """Return what a file says about its format."""
        return {"format": self.name, "version": self.version}

    def check(self, path: Path, description: dict[str, Any]) -> None:
        """Refuse a file of another format or of a newer version, naming the version it needs.

        Raises:
            KeyError, TypeError: if the description names no format at all.
        """
        name, version = description["format"], description["version"]
        if name != self.name or version > self.version:
            raise InputError(
                f"{path}: needs a version of fne that reads {name} {version}; "
                f"this one reads {self.name} up to {self.version}"
            )


def read_bytes(path: Path) -> bytes:
    """Return the content of an artifact's file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def how_to_mend(artifact: Path) -> str:
    """Say what to do about a damaged artifact.

    Its copy in DVC's cache may be damaged as well, and would come back whenever the artifact
    is removed and asked for again. That copy is looked at by `fne verify`.
    """
    return f"run `fne verify {artifact}`, which says what mends it"


def seal_text(text: str) -> str:
    """Return a text that begins with a JSON object, with the seal as that object's first entry.

    Example:
        >>> seal_text('{"version": 2}')[:16] + "…" + seal_text('{"version": 2}')[-16:]
        '{"sha256": "3a3a…", "version": 2}'
    """
    rest = '", ' + text[1:].lstrip()
    return f"{OPENING.decode()}{text_digest(rest)}{rest}"


def is_sealed(content: bytes) -> bool:
    """Tell whether a text file has a seal.

    Raises:
        ValueError: if it has one that its content does not match.
    """
    if not content.startswith(OPENING):
        return False
    start = len(OPENING)
    if content[start : start + HEX] != _hex(content[start + HEX :]):
        raise ValueError("its content does not match its seal")
    return True


def parse_document(path: Path, content: bytes, form: Format, remedy: str) -> dict[str, Any]:
    """Return the JSON object that is the content of a file, after checking its seal and format.

    Raises:
        InputError: if it is damaged, which ends with the remedy, or of a newer format.
    """
    try:
        sealed = is_sealed(content)
        document: dict[str, Any] = json.loads(content)
        form.check(path, document)
        if not sealed and document["version"] >= SEALED_SINCE:
            raise ValueError("its seal is missing")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({_in_words(error)}); {remedy}") from None
    return document


def seal_bytes(content: bytes) -> bytes:
    """Return content with a seal at its end."""
    return content + ENDING + _hex(content)


def unseal_bytes(path: Path, content: bytes, remedy: str) -> bytes:
    """Return content without the seal at its end.

    Raises:
        InputError: if the seal is missing, or if the content does not match it.
    """
    inner = content[: -len(ENDING) - HEX]
    if content != seal_bytes(inner):
        raise InputError(f"{path}: damaged or not one of ours; {remedy}")
    return inner


def _hex(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else repr(error)
