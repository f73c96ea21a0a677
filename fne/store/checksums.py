"""Seals: the SHA-256 of a file inside the file, by which a flipped bit is noticed; metrics and settings.

Text files begin with their seal, other files end with it, and metrics have it as their last entry. Shards of
row stores have their digests in the store's sealed manifest.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes, text_digest, write_text

OPENING = b'{"sha256": "'
ENDING = b"fne-sha256:"
METRICS_SEAL = "sha256"
SETTINGS = "settings.json"  # the ending of the names of files with effective settings
DEFAULTS = "default"  # the settings that no parameter file says
HEX = 64


def seal_text(text: str) -> str:
    """Return a text that begins with a JSON object, with the seal as the first entry of that object.

    Example:
        >>> seal_text('{"version": 2}')[:16] + "…" + seal_text('{"version": 2}')[-16:]
        '{"sha256": "3a3a…", "version": 2}'
    """
    rest = '", ' + text[1:].lstrip()
    return f"{OPENING.decode()}{text_digest(rest)}{rest}"


def is_sealed(content: bytes) -> bool:
    """Return whether a text file has a seal; `ValueError` if the content does not match it."""
    if not content.startswith(OPENING):
        return False
    start = len(OPENING)
    if content[start : start + HEX] != _hex(content[start + HEX :]):
        raise ValueError("its content does not match its seal")
    return True


def write_metrics(path: Path, content: dict[str, Any]) -> None:
    """Write metrics as plain JSON for DVC, with a seal."""
    write_text(path, seal_metrics(content))


def seal_metrics(content: dict[str, Any]) -> str:
    """Return metrics as JSON that ends with their digest, in a list: DVC shows no list as a column."""
    content = json.loads(json.dumps(content))  # as it will be read
    return json.dumps(content | {METRICS_SEAL: [metrics_digest(content)]}, indent=2) + "\n"


def read_metrics(path: Path, remedy: str) -> dict[str, Any]:
    """Read metrics, without their seal."""
    try:
        return parse_metrics(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error}); {remedy}") from None


def check_metrics(path: Path) -> None:
    """Refuse metrics that are damaged, or hold numbers that JSON does not have."""
    content = read_json(path)
    try:
        parse_metrics(content)
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error})") from None


def read_json(path: Path) -> bytes:
    """Return the content of a file of plain JSON."""
    try:
        content = read_bytes(path)
        json.loads(content, parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error})") from None
    return content


def parse_metrics(content: bytes) -> dict[str, Any]:
    """Return metrics without their seal; `ValueError` or `RecursionError` if the file is damaged."""
    found = json.loads(content)
    if not isinstance(found, dict) or METRICS_SEAL not in found:
        raise ValueError("it has no seal")
    if found.pop(METRICS_SEAL) != [metrics_digest(found)]:
        raise ValueError("its content does not match its seal")
    return found


def parse_settings(content: bytes) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """Return the effective settings of a pipeline by section, and which keys its parameter file says.

    `ValueError` if the file is damaged.
    """
    found: dict[str, dict[str, Any]] = {}
    given: set[str] = set()
    for origin, values in parse_metrics(content).items():
        if not isinstance(values, dict):
            raise ValueError("it has no settings")
        given |= set() if origin == DEFAULTS else set(values)
        for name, value in values.items():
            section, _, key = name.partition(".")
            found.setdefault(section, {})[key] = value
    return found, given


def metrics_digest(content: dict[str, Any]) -> str:
    """Return the digest of metrics, without their seal."""
    return text_digest(json.dumps(content, sort_keys=True))


def seal_bytes(content: bytes) -> bytes:
    """Return content with a seal at its end."""
    return content + ENDING + _hex(content)


def unseal_bytes(path: Path, content: bytes, remedy: str) -> bytes:
    """Return content without the seal at its end."""
    inner = content[: -len(ENDING) - HEX]
    if content != seal_bytes(inner):
        raise InputError(f"{path}: damaged, or not an artifact of fne; {remedy}")
    return inner


def _hex(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")
