"""Write `docs/parameters.md` from the settings models and the comments in `params.yaml`.

`python -m tests.support.parameters` writes the page, and so does `make docs`. A test compares the two.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from fne.core.variants import Blocks
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from fne.cli.check import SECTIONS
from fne.core.settings import OneOf, PerPhase, Section
from tests.support.imports import ROOT

PAGE = ROOT / "docs/parameters.md"
PARAMS = ROOT / "params.yaml"
HEAD = """# Parameters

All keys of `params.yaml`. This page is generated from the settings models and from the comments in
`params.yaml`: run `make docs` to write it again.

Change a value in the file and run `dvc repro`, or try it with `dvc exp run -S key=value`.
`fne check` reports unknown keys, wrong types and values out of range. Every key is required: the file
is the only place of values.

Some keys belong to one variant only. They stand in a block of that variant, for example
`train.max_hinge.hardest`, and have no effect while another variant is chosen.
"""
# The meanings of keys whose comments in `params.yaml` only list their choices.
MEANINGS = {
    "catalog.format": "the format of the data set",
    "extract.activations": "whether values are taken before or after ReLU",
    "extract.backbone": "the network; `timm/NAME` is any network of timm",
    "extract.crops": "the crops that are averaged: corners and center, mirrored; corners and center; center",
    "train.image_head": "what maps an embedding into the joint space",
    "train.text_encoder": "what maps a caption into the joint space",
    "train.similarity": "the score of an image and a caption",
    "train.optimizer": "the optimizer",
    "train.loss": "the ranking loss",
    "evaluate.split": "the split that is scored",
    "evaluate.protocol": "which images of the split are ranked, see [experiments](experiments.md#evaluation)",
    "runtime.device": "where torch computes",
    "train_tagger.cell": "the recurrent cell of the decoder",
    "train_tagger.concept_loss": "the loss of the concept head",
    "train_tagger.concept_head_rate": "the learning rate of the concept head",
    "train_tagger.units": "of the cell",
}
# Sections whose keys mean the same as in `train`, where they have the same names.
TRAINING = ("train_tagger",)
TYPES = {int: "integer", float: "number", str: "text", bool: "`true` or `false`"}
SIGNS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}


def page() -> str:
    """Return the text of the page."""
    values = YAML(typ="safe").load(PARAMS)
    comments = dict(line_comments())
    parts = [HEAD]
    for name, model in SECTIONS.items():
        about = comments.get(name, "")
        parts.append(
            f"## {name}\n\n"
            + (f"{sentence(about)}\n\n" if about else "")
            + table(name, model, values[name], comments)
        )
        for family, field in model.model_fields.items():
            if is_block(field):
                block = f"{name}.{family}"
                about = f"{sentence(comments[block])}\n\n"
                parts.append(
                    f"### {block}\n\n"
                    + about
                    + table(block, field.annotation, values[name][family], comments)
                )
            for variant, settings in variants(field).items():
                block = f"{name}.{family}.{variant}"
                about = comments.get(block, "")
                parts.append(
                    f"### {block}\n\n"
                    + (f"{sentence(about)}\n\n" if about else "")
                    + table(block, settings, values[name][family][variant], comments)
                )
    return "\n".join(parts)


def table(place: str, model: type[Section], values: dict[str, Any], comments: dict[str, str]) -> str:
    """Return the table of the keys that stand directly in a section or a block, in the order of the file."""
    rows = ["| key | value | allowed | meaning |", "|---|---|---|---|"]
    for key, value in values.items():
        field = model.model_fields[key]
        if not variants(field) and not is_block(field):
            name = f"{place}.{key}"
            meaning = without_choices(comments[name], field) or MEANINGS.get(name) or twin(name, comments)
            cells = [f"`{name}`", f"`{shown(value)}`", allowed(field.annotation, field.metadata), meaning]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def twin(name: str, comments: dict[str, str]) -> str:
    """Return the meaning of the same key elsewhere: in the same block of another section, or in another block."""
    section, *path = name.split(".")
    known = {**comments, **MEANINGS}
    same_block = [each for each in known if len(path) > 1 and each.split(".")[1:] == path]
    other_block = [
        each for each in known if len(path) > 1 and each.count(".") == 3 and each.endswith(f".{path[-1]}")
    ]
    shared = [
        each for each in known if section in TRAINING and each == f"train.{path[-1]}" and len(path) == 1
    ]
    return next((known[each] for each in [*same_block, *other_block, *shared] if known[each]), "")


def variants(field: FieldInfo) -> dict[str, type[Section]]:
    """Return the settings of each variant of a family that has keys, if the field holds its blocks."""
    for each in field.metadata:
        if isinstance(each, BeforeValidator) and isinstance(each.func, Blocks):
            return {name: variant.settings for name, variant in each.func.family.items() if variant.has_keys}
    return {}


def is_block(field: FieldInfo) -> bool:
    """Return whether a key holds a block of keys of its own."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, Section)


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
    """Return the names that a key allows, or none if it allows other values."""
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    if PerPhase in metadata:
        return choices_of(*inner(annotation))
    return next(
        (list(each.func.allowed) for each in metadata if isinstance(getattr(each, "func", None), OneOf)), []
    )


def inner(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type of a list's values, and its bounds or choices."""
    (value,) = get_args(annotation)
    kind, *given = get_args(value) if hasattr(value, "__metadata__") else (value,)
    return kind, [each for one in given for each in getattr(one, "metadata", None) or [one]]


def without_choices(comment: str, field: FieldInfo) -> str:
    """Return a comment, or nothing if it only lists the choices."""
    named = {each.strip() for each in comment.split("|")}
    choices = set(choices_of(field.annotation, field.metadata))
    return "" if choices and named <= choices else comment


def shown(value: Any) -> str:
    """Return a value as YAML writes it in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def sentence(text: str) -> str:
    """Return a comment as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def line_comments() -> Iterator[tuple[str, str]]:
    """Yield the dotted name of each key of `params.yaml` with the comment at the end of its line."""
    path: list[tuple[int, str]] = []
    for line in PARAMS.read_text(encoding="utf-8").splitlines():
        found = re.match(r"( *)(\w+):(?: [^#]*)?(?:# (.*))?$", line)
        if found:
            path = [each for each in path if each[0] < len(found[1])] + [(len(found[1]), found[2])]
            yield ".".join(name for _, name in path), (found[3] or "").strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
