"""Sections of `params.yaml`, each validated completely before anything is computed.

A section is a `Section` subclass of the package it configures, without defaults: `params.yaml` is the only
place where a value is written. YAML is read as version 1.2: version 1.1 would read `1e-05`, which `dvc exp
run -S train.learning_rate=1e-5` writes, as a string.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from fne.core.errors import InputError, LinesError
from fne.core.files import read_bytes

# Where the extraction computes; the variable takes precedence over `params.yaml`.
ENGINES = ("local", "ray")
ENGINE_VARIABLE = "FNE_ENGINE"
IN_PROJECT = "run this in the project's folder, or name the file"
# More than any parameter or pipeline file has; a few nested aliases stand for billions.
MANY_VALUES = 10_000
MAX_SIZE = 10_000_000  # bytes, of a file that takes minutes to parse
# The content of files that are read only once, by their paths.
_read_once: dict[Path, bytes] = {}


class Section(BaseModel):
    """A section of `params.yaml`: every key is required, no other key is allowed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


AnySection = TypeVar("AnySection", bound=Section)
# Of a training; see `fne.core.device.use_training_threads`.
TrainingThreads = Annotated[int, Field(ge=1, le=1024, examples=[2])]
# Of a key with one value per phase of training: a single value counts as a list of one, so that a fault is
# reported once and not for either reading.
PerPhase = BeforeValidator(lambda value: value if isinstance(value, list) else [value])


@dataclass(frozen=True)
class OneOf:
    """Refuses every name but the allowed ones."""

    allowed: tuple[str, ...]

    def __call__(self, name: str) -> str:
        """Return the name, or raise `ValueError` if it is not allowed."""
        if name not in self.allowed:
            raise ValueError(not_one_of(name, self.allowed))
        return name


def one_of(names: Iterable[str]) -> AfterValidator:
    """Return a validator that allows only `names`, for the `Annotated` type of a key."""
    return AfterValidator(OneOf(tuple(sorted(names))))


def not_one_of(name: str, allowed: Iterable[str]) -> str:
    """Return the message for a name that is none of `allowed`.

    Example:
        >>> not_one_of("gru2", ["gru", "lstm"])
        "'gru2' is not one of 'gru', 'lstm'"
    """
    return f"{name!r} is not one of {', '.join(repr(each) for each in allowed)}"


def load_params(path: Path) -> dict[str, Any]:
    """Read all sections of a parameter file without validating them."""
    content = _read_once.get(path)
    return deepcopy(_parsed(read_bytes(path, IN_PROJECT) if content is None else content, str(path)))


@lru_cache(maxsize=8)  # by content: a stage reads its parameters several times
def _parsed(content: bytes, place: str) -> dict[str, Any]:
    return parse_yaml(content, place)


@contextmanager
def reading_once(path: Path) -> Iterator[None]:
    """Within the block, `load_params` returns what the file holds now, whatever is written to it."""
    before = _read_once.get(path)
    _read_once[path] = read_bytes(path, IN_PROJECT)
    try:
        yield
    finally:
        if before is None:
            del _read_once[path]
        else:
            _read_once[path] = before


def parse_yaml(content: bytes, place: str, aliases: bool = True) -> dict[str, Any]:
    """Return the mapping of a YAML file; `aliases`: whether it may refer to its own nodes (`*name`)."""
    if len(content) > MAX_SIZE:
        raise InputError(f"{place}: {len(content)} bytes, more than the {MAX_SIZE} that are read")
    yaml = YAML(typ="safe", pure=True)
    if not aliases:
        yaml.Composer = _ComposerWithoutAliases
    try:
        mapping = yaml.load(content)
    except RecursionError:
        raise InputError(f"{place}: not valid YAML: too deeply nested") from None
    except (YAMLError, ValueError, TypeError, OverflowError) as error:  # such as a date without a 13th month
        fault = " ".join(str(error).split()).replace(' in "<byte string>",', " at")
        raise InputError(f"{place}: not valid YAML: {fault}") from None
    if not isinstance(mapping, dict):
        raise InputError(f"{place}: expected keys and values, found {type(mapping).__name__}")
    if aliases and not _is_bounded(mapping, max(MANY_VALUES, len(content))):
        raise InputError(f"{place}: its aliases (`*name`) stand for too many values; write the values out")
    return mapping


def _is_bounded(mapping: dict[str, Any], limit: int) -> bool:
    """Return whether a mapping has at most `limit` values, with all that its aliases stand for."""
    waiting: list[Any] = [mapping]
    count = 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > limit:
            return False
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return True


def load_section(path: Path, name: str, schema: type[AnySection]) -> AnySection:
    """Read and validate one section of a parameter file."""
    section, faults = parse_section(load_params(path), name, schema)
    if section is None:
        raise LinesError(f"{path}: section '{name}': {'; '.join(faults)}")
    return section


def load_key(path: Path, section: str, key: str) -> str:
    """Read one string of a section that another stage validates."""
    content = load_params(path).get(section)
    if not isinstance(content, dict) or not isinstance(content.get(key), str):
        raise InputError(f"{path}: section '{section}': missing key '{key}'; run `fne check`")
    value: str = content[key]
    return value


def parse_section(
    params: Mapping[str, Any], name: str, schema: type[AnySection]
) -> tuple[AnySection | None, list[str]]:
    """Validate one section of `params`; return it, or None and one message per fault."""
    if not isinstance(params.get(name), dict):
        return None, ["the section is missing" if name not in params else "expected keys and values"]
    try:
        return schema.model_validate(params[name]), []
    except ValidationError as error:
        return None, [_fault(detail, schema) for detail in error.errors()]


def unknown_key(key: str, schema: type[Section]) -> str:
    """Return the message for a key that a section does not have."""
    close = get_close_matches(key, schema.model_fields, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known keys: {', '.join(schema.model_fields)}"
    return f"unknown key '{key}' ({hint})"


class _ComposerWithoutAliases(Composer):
    """A few nested aliases can stand for more nodes than there is memory, or for themselves."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise ComposerError(
                None, None, "aliases are not allowed here", self.parser.peek_event().start_mark
            )
        return super().compose_node(parent, index)


def _fault(detail: ErrorDetails, schema: type[Section]) -> str:
    key = ".".join(str(part) for part in detail["loc"][:1])
    match detail["type"]:
        case "missing":
            examples = schema.model_fields[key].examples
            return f"missing key '{key}'" + (f" (add `{key}: {examples[0]}`)" if examples else "")
        case "extra_forbidden":
            return unknown_key(key, schema)
        case "value_error":
            fault = str(detail["ctx"]["error"])
            return f"{key}: {fault}" if key else fault
        case _:
            return f"{key}: {_lower_first(detail['msg'])}, got {detail['input']!r}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


class Runtime(Section):
    """The `runtime` section: settings that change the speed, and at most the last bits of results.

    No stage lists this section as a dependency, so another number of cores does not repeat hours of work.
    """

    device: Annotated[str, one_of(["auto", "cpu", "cuda"])]
    threads: Annotated[int, Field(ge=0)]
    workers: Annotated[int, Field(ge=0)]
    batch: Annotated[int, Field(ge=0)]
    engine: Annotated[str, one_of(ENGINES)]
    algorithm: Annotated[str, Field(min_length=1)]
    missing_store: Annotated[str, one_of(["fetch", "compute"]), Field(examples=["fetch"])]
    scratch: Annotated[str, Field(min_length=1)]

    def scratch_folder(self) -> Path:
        """Return the folder for finished work that can be computed again.

        A relative path starts at the project's root (`DVC_ROOT`), also if DVC runs in a temporary copy.
        """
        return Path(os.environ.get("DVC_ROOT", ".")) / Path(self.scratch).expanduser()


def load_runtime(params: Path) -> Runtime:
    """Read the `runtime` section of a parameter file; the variable `FNE_ENGINE` overrides `engine`."""
    runtime = load_section(params, "runtime", Runtime)
    engine = os.environ.get(ENGINE_VARIABLE) or runtime.engine
    if engine not in ENGINES:
        raise InputError(f"{ENGINE_VARIABLE}: {not_one_of(engine, ENGINES)}")
    return runtime.model_copy(update={"engine": engine})
