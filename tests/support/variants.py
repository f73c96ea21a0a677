"""Settings of variants, for tests of whole families."""

from fne.core.settings import Section
from fne.matching.settings import Train


def settings_of(name: str, **changes) -> Section | None:
    """Return the settings of a variant of `train` with changes, or None if it has none."""
    schema = Train.nested().get(name)
    return schema.model_validate(changes) if schema else None
