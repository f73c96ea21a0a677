"""Variants that own their settings: a family is a dict of them, and `params.yaml` has a block for each.

A key names the chosen variant (`loss: max_hinge`), and a block of the family holds the keys that only some
variants understand, repeated in each that does:

    losses:
      max_hinge:
        hardest: query

So every key is reachable by `-S train.losses.max_hinge.hardest=…`, and a new variant does not touch others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError

from fne.core.errors import InputError
from fne.core.params import AnySection, Section, load_params, not_one_of, parse_section, unknown_key

Made = TypeVar("Made")


class NoSettings(Section):
    """The settings of a variant that has none."""


@dataclass(frozen=True)
class Variant(Generic[Made]):
    """One entry of a family."""

    make: Callable[..., Made]  # makes it; every variant of a family is called alike, with its settings last
    # The model of its block in `params.yaml`: types and bounds, no defaults.
    settings: type[Section] = NoSettings

    @property
    def has_keys(self) -> bool:
        """Whether it has a block in `params.yaml`."""
        return bool(self.settings.model_fields)


@dataclass(frozen=True)
class Blocks:
    """Parses the blocks of a family."""

    family: Mapping[str, Variant[Any]]

    def __call__(self, value: object) -> dict[str, Section]:
        """Return the settings of each variant that has any, as `parse_blocks` does."""
        return parse_blocks(value, self.family)


def blocks(family: Mapping[str, Variant[Any]]) -> Any:
    """Return the annotated type of a family's blocks: the settings of each variant by its name."""
    return Annotated[
        dict[str, Section],
        BeforeValidator(Blocks(family)),
        PlainSerializer(lambda value: {name: each.model_dump() for name, each in value.items()}),
        # A family in which no variant has keys needs no block; of others, a missing one is a fault.
        Field(default=None, validate_default=True),
    ]


def parse_blocks(value: object, family: Mapping[str, Variant[Any]]) -> dict[str, Section]:
    """Validate the blocks of a family, or raise `ValueError` with every faulty key and what to write."""
    owners = {name: variant for name, variant in family.items() if variant.has_keys}
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ValueError(f"expected a block per variant, got {value!r}; {_lines_to_add(owners, {})}")
    faults = [_unknown_block(name, family, owners) for name in value if name not in owners]
    parsed: dict[str, Section] = {}
    missing: dict[str, list[str]] = {}
    for name, variant in owners.items():
        given = value.get(name, {})
        if not isinstance(given, dict):
            faults.append(f"{name}: expected keys and values, got {given!r}")
            continue
        try:
            parsed[name] = variant.settings.model_validate(given)
        except ValidationError as error:
            for detail in error.errors():
                key = str(detail["loc"][0]) if detail["loc"] else ""
                if detail["type"] == "missing":
                    missing.setdefault(name, []).append(key)
                elif detail["type"] == "extra_forbidden":
                    faults.append(f"{name}: {_foreign(key, name, owners)}")
                elif detail["type"] == "value_error":
                    faults.append(f"{name}.{key}: {detail['ctx']['error']}")
                else:
                    faults.append(f"{name}.{key}: {detail['msg'].lower()}, got {detail['input']!r}")
    if missing:
        named = ", ".join(f"'{name}.{key}'" for name, keys in missing.items() for key in keys)
        faults.append(f"missing {named}; {_lines_to_add(owners, missing)}")
    if faults:
        raise ValueError("; ".join(faults))
    return parsed


def load_block(path: Path, section: str, family: str, name: str, schema: type[AnySection]) -> AnySection:
    """Read and validate the block of one variant, for a stage that needs nothing else of the section."""
    content = load_params(path).get(section)
    blocks_of = content.get(family) if isinstance(content, dict) else None
    block, faults = parse_section(blocks_of if isinstance(blocks_of, dict) else {}, name, schema)
    if block is None:
        raise InputError(f"{path}: section '{section}': {family}.{name}: {'; '.join(faults)}")
    return block


def chosen(names: Iterable[str], given: Mapping[str, Section]) -> dict[str, dict[str, Any]]:
    """Return the settings of the named variants that have any, for the record of what applied."""
    return {name: given[name].model_dump() for name in dict.fromkeys(names) if name in given}


def settings_of(name: str, given: Mapping[str, Section]) -> Section:
    """Return the settings of one variant."""
    return given.get(name, NoSettings())


def _unknown_block(name: str, family: Mapping[str, Variant[Any]], owners: Iterable[str]) -> str:
    if name in family:
        return f"'{name}' has no keys of its own: remove its block"
    return not_one_of(name, owners)


def _foreign(key: str, name: str, owners: Mapping[str, Variant[Any]]) -> str:
    others = [other for other, variant in owners.items() if key in variant.settings.model_fields]
    if others:
        return f"has no key '{key}'; {' and '.join(repr(other) for other in others)} has it"
    return unknown_key(key, owners[name].settings)


def _lines_to_add(owners: Mapping[str, Variant[Any]], missing: Mapping[str, Iterable[str]]) -> str:
    """Return the lines to paste, with the values that the shipped file has as examples."""
    lines = []
    wanted = missing or {name: list(each.settings.model_fields) for name, each in owners.items()}
    for name, keys in wanted.items():
        lines.append(f"    {name}:")
        for key in keys:
            examples = owners[name].settings.model_fields[key].examples or ["…"]
            lines.append(f"      {key}: {examples[0]}")
    return "add these lines to the block:\n" + "\n".join(lines)
