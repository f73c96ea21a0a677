"""Vectors of images and captions that another program computed, as two stores of one space.

Both stores record the similarity that their space was made for: `fne import` writes it, and so does `encode`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fne.core.errors import InputError
from fne.core.files import missing_path
from fne.core.settings import Section
from fne.store.catalog import Captioned
from fne.store.layout import MANIFEST
from fne.store.rows import Rows

# How to make a store of the one or the other side.
REMEDY = {"images": "`fne import FILE`", "captions": "`fne import --captions FILE`"}


class Imported(Section):
    """The section `imported` of `params.yaml`: the folders of the two stores."""

    images: str = Field(
        "vectors/images", min_length=1, description="a store of image vectors; `fne import FILE`"
    )
    captions: str = Field(
        "vectors/captions",
        min_length=1,
        description="a store of caption vectors of the same space; `fne import --captions FILE`",
    )


@dataclass(frozen=True)
class Sides:
    """The two stores, and the name of the similarity of their space."""

    images: Rows
    captions: Rows
    similarity: str


def open_sides(settings: Imported, folder: Path = Path()) -> Sides:
    """Open the two stores; `folder` is that of the parameter file. They must be of one space."""
    images, captions = (
        _open(folder / path, side)
        for side, path in (("images", settings.images), ("captions", settings.captions))
    )
    similarities = [_similarity(rows, side) for rows, side in ((images, "images"), (captions, "captions"))]
    both = f"{images.artifact.path} and {captions.artifact.path} are not of one space"
    if images.features != captions.features:
        raise InputError(
            f"{both}: vectors have {images.features} and {captions.features} values; "
            "import both sides of one encoder"
        )
    if similarities[0] != similarities[1]:
        raise InputError(
            f"{both}: their similarities are '{similarities[0]}' and '{similarities[1]}'; "
            "import both with the same --similarity"
        )
    return Sides(images, captions, similarities[0])


def require_all(sides: Sides, captioned: Sequence[Captioned]) -> None:
    """Refuse stores that lack a captioned image of the catalog, or a caption."""
    records = [record for record in captioned if record.captions]
    wanted = {
        "image": (sides.images, [record.id for record in records]),
        "caption": (sides.captions, [each for record in records for each in record.caption_ids]),
    }
    for what, (rows, ids) in wanted.items():
        known = set(rows.ids)
        missing = [each for each in ids if each not in known]
        if missing:
            raise InputError(
                f"{rows.artifact.path}: has no vector for {len(missing)} of {len(ids)} {what}s, the first is "
                f"{missing[0]!r}; import vectors of all {what}s"
            )


def close_to_chance(rsum: float, chance: float) -> str:
    """Return the warning that vectors rank no better than chance, and what helps."""
    return (
        f"the imported vectors are not clearly better than chance: rsum {rsum:.1f}, chance {chance:.1f}. "
        "Look whether both sides are of one space, and whether the ids and numbers of captions are right"
    )


def _open(path: Path, side: str) -> Rows:
    if not (path / MANIFEST).is_file():
        raise missing_path(path, f"make it with {REMEDY[side]}, and set imported.{side} to it", "store")
    return Rows.open(path)


def _similarity(rows: Rows, side: str) -> str:
    found = rows.artifact.settings.get("similarity")
    if found is None:
        raise InputError(
            f"{rows.artifact.path}: does not record a similarity; import vectors with {REMEDY[side]}, and "
            f"set imported.{side} to the new store"
        )
    return str(found)
