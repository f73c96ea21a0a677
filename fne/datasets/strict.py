"""Text and JSON read strictly: what the standard parser would let pass is an error.

Python's parser accepts NaN, numbers too large for anything, and objects that name a
key twice, of which it silently keeps the last.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fne.core.errors import InputError
from fne.datasets.records import refuse

LARGEST = 2**63 - 1

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Raises:
        InputError: if the file cannot be read or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the file") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: naming the file, on anything that is not JSON in the strict sense.
    """
    return parse_json(read_text(path), str(path))


def parse_json(text: str, place: str) -> Any:
    """Return the content of a JSON text; `place` names it in the message of an InputError."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError:
        raise InputError(f"{place}: not usable JSON: nested too deeply; fix the file") from None
    except ValueError as error:
        raise InputError(f"{place}: not usable JSON: {error}; fix the file") from None


def as_model(content: Any, model: type[AnyModel], place: str) -> AnyModel:
    """Return parsed JSON as a model, or raise an InputError that names every fault."""
    try:
        return model.model_validate(content, strict=True)
    except ValidationError as error:
        refuse(place, [_in_words(detail) for detail in error.errors(include_url=False)], "fix the file")
        raise


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {key!r} stands twice in one object")
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


def _in_words(detail: ErrorDetails) -> str:
    *outer, last = [str(part) for part in detail["loc"]] or ["the file"]
    if detail["type"] == "missing":
        return f"{'.'.join(outer) or 'the object'} has no '{last}'"
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    if detail["type"] in ("model_type", "dict_type"):  # pydantic's own words name our classes
        message = "input should be a JSON object"
    return f"{'.'.join([*outer, last])}: {message}, got {shown}"
