"""Sections of `params.yaml`, each validated in full before anything is computed.

A section is a `Section` subclass that lives with the package it configures. It has
no defaults: `params.yaml` is the only place where a value is written. YAML is read
as version 1.2, because version 1.1 takes `1e-05`, which is what
`dvc exp run -S train.learning_rate=1e-5` writes, for a string.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fne.core.errors import InputError


class Section(BaseModel):
    """A section of `params.yaml`: every key is required, no other key is allowed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


AnySection = TypeVar("AnySection", bound=Section)


def one_of(names: Iterable[str]) -> AfterValidator:
    """Admit only `names`; stands in the `Annotated` type of a key that chooses a variant."""
    allowed = sorted(names)

    def check(name: str) -> str:
        if name not in allowed:
            raise ValueError(not_one_of(name, allowed))
        return name

    return AfterValidator(check)


def not_one_of(name: str, allowed: Iterable[str]) -> str:
    """Say that `name` is none of `allowed`, as every message of ours says it."""
    return f"{name!r} is not one of {', '.join(repr(each) for each in allowed)}"


def load_params(path: Path) -> dict[str, Any]:
    """Read all sections of a parameter file, not yet validated."""
    try:
        params = YAML(typ="safe", pure=True).load(path)
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; run this in the project's folder, or name the file"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise InputError(f"{path}: not valid YAML: too deeply nested") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(params, dict):
        raise InputError(f"{path}: expected sections such as 'catalog:', found {type(params).__name__}")
    return params


def load_section(path: Path, name: str, schema: type[AnySection]) -> AnySection:
    """Read and validate one section of a parameter file.

    Raises:
        InputError: naming every fault of the section at once.
    """
    section, faults = parse_section(load_params(path), name, schema)
    if section is None:
        raise InputError(f"{path}: section '{name}': {'; '.join(faults)}")
    return section


def load_key(path: Path, section: str, key: str) -> str:
    """Read one text of a section that another stage validates."""
    content = load_params(path).get(section)
    if not isinstance(content, dict) or not isinstance(content.get(key), str):
        raise InputError(f"{path}: section '{section}': missing key '{key}'; run `fne check`")
    value: str = content[key]
    return value


def parse_section(
    params: Mapping[str, Any], name: str, schema: type[AnySection]
) -> tuple[AnySection | None, list[str]]:
    """Validate one section of `params`; return it, or None and its faults in words."""
    if not isinstance(params.get(name), dict):
        return None, ["the section is missing" if name not in params else "expected keys and values"]
    try:
        return schema.model_validate(params[name]), []
    except ValidationError as error:
        return None, [_in_words(detail, schema) for detail in error.errors()]


def _in_words(detail: ErrorDetails, schema: type[Section]) -> str:
    key = ".".join(str(part) for part in detail["loc"][:1])
    match detail["type"]:
        case "missing":
            return f"missing key '{key}'"
        case "extra_forbidden":
            close = get_close_matches(key, schema.model_fields, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known keys: {', '.join(schema.model_fields)}"
            return f"unknown key '{key}' ({hint})"
        case "value_error":
            fault = str(detail["ctx"]["error"])
            return f"{key}: {fault}" if key else fault
        case _:
            return f"{key}: {_lower_first(detail['msg'])}, got {detail['input']!r}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
