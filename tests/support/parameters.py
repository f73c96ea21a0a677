"""Write `docs/parameters.md` from the classes of the sections.

`python -m tests.support.parameters` writes the page, and so does `make docs`. A test compares the two.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from fne.cli.check import descriptions, shown
from fne.core.settings import OneOf, PerPhase, Section, flattened, load_params
from fne.experiments.effective_settings import DEFAULT, PIPELINES, pipeline_params
from fne.extraction.preprocess import CROPS, RESIZES
from fne.features.embeddings import EMBEDDINGS, ROWS, THRESHOLDS
from fne.matching.data import DRAWS
from fne.matching.hard_negatives import MINERS
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.similarities import SIMILARITIES
from fne.matching.task import RATES
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.training.optimizers import CLIPS, OPTIMIZERS
from tests.support.imports import ROOT

PAGE = ROOT / "docs/parameters.md"
HEAD = """# Parameters

All keys with their defaults, generated from the code by `make docs`. The files hold the keys that
people change often, marked with `*` here; `fne check --show` prints the values in use.

To try a value, use `-S key=value` for a key that the file has, and `-S ++key=value` for any other
one. A block such as `train.mlp` applies only while one of the keys named there has its name.
"""
TYPES = {int: "integer", float: "number", str: "text", bool: "`true` or `false`"}
# Families whose functions say what a value means.
FAMILIES: dict[str, Mapping[str, Any]] = {
    "extract.resize": RESIZES,
    "extract.crops": CROPS,
    "embed.kind": EMBEDDINGS,
    "embed.rows": ROWS,
    "embed.thresholds": THRESHOLDS,
    "train.image_head": IMAGE_HEADS,
    "train.text_encoder": TEXT_ENCODERS,
    "train.similarity": SIMILARITIES,
    "train.loss": {name: counted for name, (counted, _) in MINERS.items()},
    "train.captions": DRAWS,
    "train.optimizer": OPTIMIZERS,
    "train.clip_by": CLIPS,
    "train.rates": RATES,
}
SIGNS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}


def page() -> str:
    """Return the text of the page."""
    given = set(flattened(load_params(ROOT / "params.yaml")))
    parts = [HEAD]
    for pipeline, sections in PIPELINES.items():
        for name, schema in sections.items():
            file = f"In `{pipeline_params(pipeline)}`.\n\n" if pipeline != DEFAULT else ""
            parts.append(f"## {name}\n\n{file}{table(name, schema, given)}")
            parts.extend(
                values(f"{name}.{key}") for key in schema.model_fields if f"{name}.{key}" in FAMILIES
            )
            for block, nested in schema.nested().items():
                keys = [f"`{name}.{key}`" for key in choosing(schema, block)]
                when = f"With {' or '.join(keys)} `{block}`. " if keys else ""
                about = first_sentence(nested)
                place = f"{name}.{block}"
                parts.append(f"### {place}\n\n{when}{about}\n\n{table(place, nested, given)}")
    return "\n".join(parts)


def table(place: str, schema: type[Section], given: set[str]) -> str:
    """Return the table of the keys that stand directly in a section or a block."""
    rows = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    defaults, meanings = schema().model_dump(), descriptions(schema)
    for key, field in schema.model_fields.items():
        if key not in schema.nested():
            name = f"{place}.{key}"
            mark = " *" if name in given else ""
            default = f"`{shown(defaults[key])}`"
            cells = [f"`{name}`{mark}", default, allowed(field.annotation, field.metadata), meanings[key]]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def values(place: str) -> str:
    """Return what each value of a key means, as its function says."""
    lines = [f"- `{name}`: {first_sentence(variant)}" for name, variant in FAMILIES[place].items()]
    return f"### Values of {place}\n\n" + "\n".join(lines) + "\n"


def first_sentence(documented: Any) -> str:
    """Return the first paragraph of a docstring, without the word that begins many of them."""
    text = documented.__doc__.split("\n\n")[0].removeprefix("Return ")
    return " ".join(f"{text[0].upper()}{text[1:]}".split())


def choosing(schema: type[Section], block: str) -> list[str]:
    """Return the keys of a section of which a value chooses a block."""
    return [key for key in schema.model_fields if block in names_allowed(schema, key)]


def names_allowed(schema: type[Section], key: str) -> list[str]:
    """Return the names that a key allows, or none if it allows other values."""
    field: FieldInfo = schema.model_fields[key]
    return choices_of(field.annotation, field.metadata)


def allowed(annotation: Any, metadata: list[Any]) -> str:
    """Return a type with its bounds or choices, in words."""
    if get_origin(annotation) is list:
        one = allowed(*inner(annotation))
        return f"{one}; or a list with one per phase" if PerPhase in metadata else f"a list: {one}"
    if choices := choices_of(annotation, metadata):
        return ", ".join(f"`{each}`" for each in choices)
    if annotation not in TYPES:
        return "text or a list of texts"
    bounds = [
        f"{sign} {getattr(each, name)}"
        for each in metadata
        for kind, (name, sign) in SIGNS.items()
        if isinstance(each, kind)
    ]
    return " ".join([TYPES[annotation], ", ".join(bounds)]).strip()


def choices_of(annotation: Any, metadata: list[Any]) -> list[str]:
    """Return the names that a type allows, or that it allows in a list; none if it allows other values."""
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    if get_origin(annotation) is list:
        return choices_of(*inner(annotation))
    return next(
        (list(each.func.allowed) for each in metadata if isinstance(getattr(each, "func", None), OneOf)), []
    )


def inner(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type of a list's values, and its bounds or choices."""
    (value,) = get_args(annotation)
    kind, *given = get_args(value) if hasattr(value, "__metadata__") else (value,)
    return kind, [each for one in given for each in getattr(one, "metadata", None) or [one]]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
