"""Settings of variants, for tests of whole families."""

from fne.core.settings import Section
from fne.core.variants import Variant


def examples(variant: Variant, **changes) -> Section:
    """Return the settings that the fields of a variant have as examples, with changes."""
    fields = variant.settings.model_fields
    return variant.settings.model_validate({key: each.examples[0] for key, each in fields.items()} | changes)
