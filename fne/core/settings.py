"""Sections of the parameter files, each validated completely before anything is computed.

A section is a `Section` subclass of the package it configures. The class has the default, the bounds and the
meaning of every key; `params.yaml`, and `params.yaml` of the pipelines beside it, hold the values that differ
or that people change often. Keys that only one variant has stand in a block with its name:

    train:
      image_head: mlp
      mlp:
        dropout: 0.3

So every key is reachable by `-S ++train.mlp.dropout=0.3`. The block of a variant that is not chosen is
checked, and does not apply.

YAML is read as version 1.2: version 1.1 would read `1e-05`, which `dvc exp run -S train.learning_rate=1e-5`
writes, as a string.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

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
# What nests values within a line, and how much of it the parser in C may read: it is four times as fast,
# but would crash the process where Python raises an error.
NESTING, MUCH_NESTING = re.compile(rb"[\[{?]|-\s|(?<!\S):\s"), 1000
YAML_FAULTS = (YAMLError, ValueError, TypeError, OverflowError)  # such as a date without a 13th month
PIPELINES = "pipelines/*/params.yaml"
# The content of files that are read only once, by their paths.
_read_once: dict[Path, bytes] = {}


class Section(BaseModel):
    """A section of a parameter file, or a block of one: no key but these is allowed."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True
    )

    # Blocks that belong to no variant, and always apply.
    common: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def nested(cls) -> "dict[str, type[Section]]":
        """Return the blocks of the section by their names."""
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        return {
            name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)
        }

    def chosen(self) -> set[str]:
        """Return the names of the variants in use, which are values of the section's keys."""
        values = [getattr(self, name) for name in type(self).model_fields.keys() - self.nested().keys()]
        listed = [each for value in values for each in (value if isinstance(value, list) else [value])]
        return {each for each in listed if isinstance(each, str)}

    def effective(self) -> dict[str, Any]:
        """Return the keys that apply, with their values: blocks of variants that are not chosen do not."""
        return self.model_dump(exclude=self.nested().keys() - self.chosen() - {*self.common})

    def applied(self) -> dict[str, Any]:
        """Return the settings as they are used and recorded, where that is another form than `effective`."""
        return self.effective()


AnySection = TypeVar("AnySection", bound=Section)
# Threads of a training run; see `fne.core.device.use_training_threads`.
TrainingThreads = Annotated[int, Field(ge=1, le=1024)]
# A key with one value per phase of training: a single value counts as a list of one, so that a fault is
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


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping of a YAML file."""
    content = _read_once.get(path)
    return deepcopy(_parsed(read_bytes(path, IN_PROJECT) if content is None else content, str(path)))


@lru_cache(maxsize=16)  # by content: a stage reads its parameters several times
def _parsed(content: bytes, place: str) -> dict[str, Any]:
    return parse_yaml(content, place)


def parameter_files(path: Path) -> list[Path]:
    """Return a parameter file, and those of the pipelines beside it."""
    return [path, *sorted(path.parent.glob(PIPELINES))]


def load_params(path: Path) -> dict[str, Any]:
    """Read the sections of a parameter file and of the pipelines beside it, without validating them."""
    sections: dict[str, Any] = {}
    owners: dict[str, Path] = {}
    for file in parameter_files(path):
        found = read_yaml(file)
        for name in found.keys() & sections.keys():
            raise InputError(f"{file}: section '{name}' stands in {owners[name]} too; remove one of them")
        sections |= found
        owners |= dict.fromkeys(found, file)
    return sections


def file_of(path: Path, section: str) -> Path:
    """Return which file holds a section: a parameter file, or that of a pipeline beside it."""
    return next((each for each in parameter_files(path)[1:] if section in read_yaml(each)), path)


@contextmanager
def reading_once(path: Path) -> Iterator[None]:
    """Within the block, `load_params` returns what the files hold now, whatever is written to them."""
    before = dict(_read_once)
    for file in parameter_files(path):
        _read_once[file] = read_bytes(file, IN_PROJECT)
    try:
        yield
    finally:
        _read_once.clear()
        _read_once.update(before)


def parse_yaml(content: bytes, place: str, aliases: bool = True) -> dict[str, Any]:
    """Return the mapping of a YAML file; `aliases`: whether it may refer to its own nodes (`*name`)."""
    if len(content) > MAX_SIZE:
        raise InputError(f"{place}: {len(content)} bytes, more than the {MAX_SIZE} that are read")
    try:
        mapping = _load(content, aliases)
    except RecursionError:
        raise InputError(f"{place}: not valid YAML: too deeply nested") from None
    except YAML_FAULTS as error:
        fault = " ".join(str(error).split()).replace(' in "<byte string>",', " at")
        raise InputError(f"{place}: not valid YAML: {fault}") from None
    if not isinstance(mapping, dict):
        raise InputError(f"{place}: expected keys and values, found {type(mapping).__name__}")
    if aliases and not _is_bounded(mapping, max(MANY_VALUES, len(content))):
        raise InputError(f"{place}: its aliases (`*name`) stand for too many values; write the values out")
    return mapping


def _load(content: bytes, aliases: bool) -> Any:
    if len(NESTING.findall(content)) < MUCH_NESTING and (aliases or b"*" not in content):
        with suppress(*YAML_FAULTS):
            return YAML(typ="safe").load(content)
    yaml = YAML(typ="safe", pure=True)  # whose messages are better
    if not aliases:
        yaml.Composer = _ComposerWithoutAliases
    return yaml.load(content)


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
        raise LinesError(f"{file_of(path, name)}: section '{name}': {'; '.join(faults)}")
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
    """Validate one section of `params`; return it, or None and one message per fault.

    A section that is missing has the defaults of its keys.
    """
    content = params.get(name)
    if content is not None and not isinstance(content, dict):
        return None, ["expected keys and values"]
    try:
        return schema.model_validate(content or {}), []
    except ValidationError as error:
        return None, [_fault(detail, schema) for detail in error.errors()]


def flattened(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested keys as one level, named as `-S` names them.

    Example:
        >>> flattened({"margin": 0.2, "max_hinge": {"hardest": "query"}})
        {'margin': 0.2, 'max_hinge.hardest': 'query'}
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        nested = isinstance(value, Mapping)
        flat |= flattened(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def put(content: dict[str, Any], place: str, value: Any) -> None:
    """Set a nested key, given as `max_hinge.hardest`; blocks on the way are copied or made."""
    *path, last = place.split(".")
    for part in path:
        content[part] = dict(content.get(part) or {})
        content = content[part]
    content[last] = value


def unknown_key(
    key: str, schema: type[Section], prefix: str = "", section: type[Section] | None = None
) -> str:
    """Return the message for a key that a section, or the block `prefix` of a section, does not have."""
    close = [f"{prefix}{each}" for each in get_close_matches(key, schema.model_fields, n=1)]
    if not close:
        blocks = (section or schema).nested().items()
        close = [f"{name}.{key}" for name, block in blocks if key in block.model_fields]
    named = " or ".join(f"'{each}'" for each in close)
    hint = f"did you mean {named}?" if close else f"known keys: {', '.join(schema.model_fields)}"
    return f"unknown key '{prefix}{key}' ({hint})"


class _ComposerWithoutAliases(Composer):
    """A few nested aliases can stand for more nodes than there is memory, or for themselves."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise ComposerError(
                None, None, "aliases are not allowed here", self.parser.peek_event().start_mark
            )
        return super().compose_node(parent, index)


def _fault(detail: ErrorDetails, schema: type[Section]) -> str:
    first, *rest = [*map(str, detail["loc"]), ""][: 2 if detail["loc"] else 1]
    owner, prefix, key = schema, "", first
    if first in schema.nested() and rest and rest[0]:
        owner, prefix, key = schema.nested()[first], f"{first}.", rest[0]
    match detail["type"]:
        case "missing":
            return f"missing key '{prefix}{key}'"
        case "extra_forbidden":
            return unknown_key(key, owner, prefix, schema)
        case "value_error":
            fault = str(detail["ctx"]["error"])
            return f"{prefix}{key}: {fault}" if key else fault
        case "model_type":
            return f"{prefix}{key}: expected keys and values, got {detail['input']!r}"
        case _:
            message = detail["msg"]
            return f"{prefix}{key}: {message[:1].lower()}{message[1:]}, got {detail['input']!r}"


class Runtime(Section):
    """The `runtime` section: settings that change the speed, and at most the last bits of results.

    No stage lists this section as a dependency, so another number of cores does not repeat hours of work.
    """

    device: Annotated[str, one_of(["auto", "cpu", "cuda"])] = Field(
        "auto", description="where torch computes"
    )
    threads: int = Field(
        0, ge=0, description="threads of torch, except in training, which has its own key; 0: torch decides"
    )
    workers: int = Field(2, ge=0, description="processes that decode images")
    batch: int = Field(
        0, ge=0, description="images computed at once; 0: one per thread of a CPU, 16 on a GPU"
    )
    engine: Annotated[str, one_of(ENGINES)] = Field(
        "local", description=f"where the extraction computes; the variable `{ENGINE_VARIABLE}` overrides it"
    )
    algorithm: str = Field(
        "auto", min_length=1, description="algorithm of the extraction: auto, plain, sharing or winograd"
    )
    missing_store: Annotated[str, one_of(["fetch", "compute"])] = Field(
        "fetch",
        description="if `dvc.lock` names a store that the cache does not have, and computing it takes long: "
        "stop and print the command that fetches it, or compute it",
    )
    scratch: str = Field(
        ".fne", min_length=1, description="folder for finished work, which can be removed at any time"
    )

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
