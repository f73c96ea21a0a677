"""Which keys of `params.yaml` take effect, and their names for `-S`.

A section may have blocks with the settings of variants, named after the key that chooses one: `losses` after
`loss`, `concept_sources` after `concepts`. The block of a variant that is not chosen does not apply.
"""

from collections.abc import Mapping
from typing import Any


def put(content: dict[str, Any], place: str, value: Any) -> None:
    """Set a nested key, given as `losses.max_hinge.hardest`; blocks on the way are copied or made."""
    *path, last = place.split(".")
    for part in path:
        content[part] = dict(content.get(part) or {})
        content = content[part]
    content[last] = value


def flattened(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested keys as one level, named as `-S` names them.

    Example:
        >>> flattened({"margin": 0.2, "losses": {"max_hinge": {"hardest": "query"}}})
        {'margin': 0.2, 'losses.max_hinge.hardest': 'query'}
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        nested = isinstance(value, Mapping)
        flat |= flattened(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def applies(key: str, section: Mapping[str, Any]) -> bool:
    """Return whether a flattened key applies: one in the block of a variant that is not chosen does not.

    Example:
        >>> applies("losses.max_hinge.hardest", {"loss": ["sum_hinge"]})
        False
    """
    family, _, rest = key.partition(".")
    variant, _, own = rest.partition(".")
    if not own:
        return True
    chosen = [value for name, value in section.items() if _chooses(name, family)]
    return any(variant in (each if isinstance(each, list) else [each]) for each in chosen)


def _chooses(name: str, family: str) -> bool:
    return name != family and family.startswith(name.removesuffix("s"))
