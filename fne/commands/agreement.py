"""Whether artifacts belong together: their ids with the catalog, their lineages with what is here."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fne.captions.vocabulary import read_vocabulary
from fne.commands.contents import Contents
from fne.commands.kinds import STORE, kind_of
from fne.core.errors import InputError
from fne.matching.modelfile import read_model
from fne.store.arrays import read_arrays
from fne.store.catalog import SPLITS, read_captions, read_images, split_artifact
from fne.store.lineage import Artifact
from fne.store.rows import Rows


@dataclass(frozen=True)
class Surroundings:
    """The artifacts of a project as they say they are, not checked in full."""

    artifacts: list[Artifact]
    # Image ids of the catalog file that lists images, image and caption ids of the one that lists captions.
    listed: tuple[Path, list[str]] | None
    images: tuple[Path, list[str]] | None
    captions: tuple[Path, list[str]] | None


def look_around(paths: Iterable[Path]) -> Surroundings:
    """Open what can be opened at `paths`; damaged artifacts do not count here."""
    artifacts: list[Artifact] = []
    listed = images = captions = None
    for path in paths:
        kind = kind_of(path)
        try:
            if kind == "images.jsonl":
                records, artifact = read_images(path)
                listed = path, [image.id for image in records]
                artifacts.append(artifact)
            elif kind == "captions.jsonl":
                captioned, artifact = read_captions(path)
                images = path, [record.id for record in captioned]
                captions = path, [each for record in captioned for each in record.caption_ids]
                artifacts += [artifact, *(split_artifact(path, captioned, split) for split in SPLITS)]
            elif kind in OPENERS:
                artifacts.append(OPENERS[kind](path))
        except InputError:
            continue
    return Surroundings(artifacts, listed, images, captions)


def disagreements(path: Path, contents: Contents, around: Surroundings) -> list[str]:
    """Return what of an artifact does not fit the catalog or its ancestors, in words."""
    artifact = contents.artifact
    if artifact is None:
        return []
    # What was extracted has the images of the catalog; what was imported may have more.
    extracted = "images" in artifact.lineage
    listed = around.listed if artifact.name == "activations" and extracted else around.images
    return [
        *_ids(path, contents.image_ids, listed, exactly=extracted or artifact.name == "images"),
        *_ids(path, contents.caption_ids, around.captions, exactly=True),
        *_lineage(path, artifact, around.artifacts),
    ]


def _ids(
    path: Path, ids: Sequence[str] | None, catalog: tuple[Path, list[str]] | None, exactly: bool
) -> list[str]:
    if ids is None or catalog is None:
        return []
    place, wanted = catalog
    missing = sorted(set(wanted) - set(ids))
    foreign = sorted(set(ids) - set(wanted)) if exactly else []
    faults = []
    if missing:
        faults.append(
            f"{path}: lacks {len(missing)} of the {len(wanted)} ids of {place}, the first is {missing[0]!r}"
        )
    if foreign:
        faults.append(
            f"{path}: has {len(foreign)} ids that {place} does not have, the first is {foreign[0]!r}"
        )
    return faults


def _lineage(path: Path, artifact: Artifact, present: Sequence[Artifact]) -> list[str]:
    faults = []
    for name, entry in artifact.lineage.items():
        # There may be several, such as extracted and imported activations.
        here = [each for each in present if each.name == name]
        if here and entry["digest"] not in [each.digest for each in here]:
            faults.append(
                f"{path} was made from {name} {entry['digest'][:12]}…, but "
                f"{here[0].path} holds {name} {here[0].digest[:12]}…"
            )
    return faults


OPENERS: dict[str, Callable[[Path], Artifact]] = {
    STORE: lambda path: Rows.open(path).artifact,
    ".h5": lambda path: read_arrays(path).artifact,
    ".safetensors": lambda path: read_model(path)[1],
    "vocabulary.json": lambda path: read_vocabulary(path).artifact,
}
