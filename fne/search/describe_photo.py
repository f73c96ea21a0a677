"""Describe images with trained models: sentences, tags and concepts of photos, folders and catalog images.

All models (`PARTS`) read the same embeddings, so an image is embedded once, and one of the catalog has its
stored embedding. Importing torch takes longer than a search, so it is imported when something is described.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.files import plain_cell, read_bytes, write_text
from fne.core.outputs import check_output
from fne.core.settings import load_params, not_one_of, parse_section
from fne.describing.model_file import TUNED_PIPELINES, DescribingFile, read_describing_file
from fne.describing.settings import CAPTIONER, TAGGER
from fne.search.open_project import ExternalImage, Project, QueryImage, parse_query
from fne.store.artifact import Artifact, merge
from fne.store.rows import Rows

if TYPE_CHECKING:
    from fne.describing.settings import Writing
    from fne.search.embed_query import Embedder

WRITER = "fne describe"
# The answer of a tagger that writes no tags: this many of its likeliest concepts.
LIKELIEST = 3
OUTPUTS = (".csv", ".jsonl")


@dataclass(frozen=True)
class Described:
    """An image to describe."""

    name: str  # the id of an image of the catalog, or the name of a file
    file: Path | None  # if the project has it
    user_tags: Sequence[str] = ()  # noisy tags that the catalog has for it
    true_tags: Sequence[str] = ()


@dataclass
class Description:
    """The description of an image, as values by name."""

    image: Described
    values: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        file = str(self.image.file) if self.image.file else None
        return {"image": self.image.name, "file": file, **self.values}


@dataclass(frozen=True)
class Wanted:
    """What a user wants to know."""

    concepts: int  # how many
    only: str | None = None  # which value, or None for all
    writing: "Writing | None" = None  # None for no sentences

    def includes(self, name: str) -> bool:
        """Return whether a value is wanted."""
        return self.only in (None, BELONGS.get(name, name))


@dataclass(frozen=True)
class Part:
    """A model that describes images, and the function that does it with rows (images, features)."""

    model: str
    pipeline: str  # the pipeline file that makes the model
    says: tuple[str, ...]  # the values that it predicts, by the names that `--only` takes
    read: Callable[[Path], DescribingFile]
    describe: Callable[[DescribingFile, Sequence[Described], np.ndarray, Wanted], list[dict[str, Any]]]


@dataclass(frozen=True)
class Descriptions:
    """The descriptions of all images, and notes for the user."""

    descriptions: list[Description]
    models: list[Artifact]
    notes: list[str]
    unreadable: dict[str, str]


def describe(
    project: Project, arguments: Sequence[str], folder: Path | None, wanted: Wanted, tuned: bool = False
) -> Descriptions:
    """Describe images of the catalog and image files (`arguments`), or a folder of photos.

    Models that were `tuned` with their image networks read rows of their own; others read the embeddings.
    """
    stat_cache.use(project.scratch)
    parts, notes = _available(project, wanted, TUNED_PARTS if tuned else PARTS)
    files = [part.read(project.path(part.model)) for part in parts]
    models = [file.artifact for file in files]
    merge(*models)
    unreadable: dict[str, str] = {}
    read = models if tuned else models[:1]
    if folder is None:
        images, rows = _embed_all(project, arguments, read, tuned)
    else:
        images, rows, unreadable = _embed_folder(project, folder, read, tuned)
    rows = rows if tuned else rows * len(parts)
    return Descriptions(describe_rows(parts, files, images, rows, wanted), models, notes, unreadable)


def describe_rows(
    parts: Sequence[Part],
    files: Sequence[DescribingFile],
    images: Sequence[Described],
    rows: Sequence[np.ndarray],
    wanted: Wanted,
) -> list[Description]:
    """Describe images; each part has a model in `files` and its embeddings in `rows` (images, features)."""
    descriptions = [Description(image) for image in images]
    for part, file, own in zip(parts, files, rows, strict=True):
        found = part.describe(file, images, own, wanted)
        for description, values in zip(descriptions, found, strict=True):
            description.values |= {name: value for name, value in values.items() if wanted.includes(name)}
    for description in descriptions:
        if description.image.true_tags and wanted.includes("tags"):
            description.values["true_tags"] = list(description.image.true_tags)
    return descriptions


def write_table(path: Path, answer: Descriptions) -> None:
    """Write descriptions as a table that `catalog` reads: CSV or JSONL, by the ending of the file.

    Every row names the models that wrote it, so that it is not mistaken for human work.
    """
    check_table(path)
    writer = ", ".join(f"{model.path.name} {model.digest[:12]}" for model in answer.models)
    rows = [_table_row(each) | {"written_by": f"{WRITER} ({writer})"} for each in answer.descriptions]
    if path.suffix.lower() == ".jsonl":
        write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(rows[0])
    for row in rows:
        table.writerow([_cell(path, name, value) for name, value in row.items()])
    write_text(path, buffer.getvalue())


def check_table(path: Path, *inputs: Path) -> None:
    """Refuse a table of another ending, or one that this command would not have written."""
    if path.suffix.lower() not in OUTPUTS:
        raise InputError(f"--output: {path} must end with {' or '.join(OUTPUTS)}")
    check_output(path, "--output", lambda head: f"{WRITER} (".encode() in head, *inputs)


def describe_tags(
    file: DescribingFile, images: Sequence[Described], rows: np.ndarray, wanted: Wanted
) -> list[dict[str, Any]]:
    """Return the tags and the likeliest concepts of images, given their embeddings (images, features)."""
    from fne.describing.write import Writer, likeliest  # torch: slow to import

    names, known_user_tags = file.vocabulary.concepts.names, file.vocabulary.user_tags
    user_tags = np.array(
        [[tag in image.user_tags for tag in known_user_tags] for image in images], dtype=np.float32
    )
    tags = Writer(file.load(), file.vocabulary).tag(rows, user_tags if known_user_tags else None)
    found: list[dict[str, Any]] = []
    for number in range(len(images)):
        values: dict[str, Any] = {}
        if tags.probabilities is not None:
            values["tags"] = list(likeliest(names, tags.probabilities[number], LIKELIEST))
            values["concepts"] = likeliest(names, tags.probabilities[number], wanted.concepts)
        if tags.written is not None:
            values["tags"] = [names[each] for each in tags.written[number]]
        found.append(values)
    return found


def describe_captions(
    file: DescribingFile, images: Sequence[Described], rows: np.ndarray, wanted: Wanted
) -> list[dict[str, Any]]:
    """Return a sentence, its alternatives and the likeliest concepts of images, given their embeddings."""
    from fne.describing.write import Writer, caption_search, likeliest  # torch: slow to import

    writer, words = Writer(file.load(), file.vocabulary), file.vocabulary.words
    assert words is not None, "a captioner has words"
    how = caption_search(wanted.writing) if wanted.writing else None
    written = writer.write(rows, None, how)
    found = []
    for number in range(len(images)):
        values: dict[str, Any] = {}
        if written.hypotheses is not None:
            listed = [
                {"text": words.decode(each.words), "log_probability": round(each.log_probability, 4)}
                for each in written.hypotheses[number]
            ]
            values |= {"caption": listed[0]["text"], "sentences": listed}
        if written.probabilities is not None:
            names = file.vocabulary.concepts.names
            values["concepts"] = likeliest(names, written.probabilities[number], wanted.concepts)
        found.append(values)
    return found


def read_writing(params: Path, beam: int | None) -> "Writing":
    """Return how sentences are written, by the parameter file, with another beam if one is given."""
    from fne.describing.settings import Writing  # torch: slow to import

    section = load_params(params).get("write_captions")
    section = section if isinstance(section, dict) else {}
    known = {key: section[key] for key in Writing.model_fields if key in section}
    writing, faults = parse_section({"write_captions": known}, "write_captions", Writing)
    if writing is None:
        raise InputError(f"{params}: section 'write_captions': {'; '.join(faults)}")
    return writing if beam is None else writing.model_copy(update={"beam": beam})


def _available(
    project: Project, wanted: Wanted, known_parts: Mapping[str, Part]
) -> tuple[list[Part], list[str]]:
    """Return the parts whose models are here and wanted, and how to make the others."""
    if wanted.only is not None:
        known = sorted({name for part in known_parts.values() for name in part.says})
        if wanted.only not in known:
            raise InputError(f"--only: {not_one_of(wanted.only, known)}")
    chosen = [part for part in known_parts.values() if wanted.only is None or wanted.only in part.says]
    here = [part for part in chosen if project.path(part.model).exists()]
    missing = [
        f"no {part.model} ({' and '.join(part.says)}); `dvc repro {part.pipeline}` makes it"
        for part in chosen
        if part not in here
    ]
    if not here:
        raise InputError(f"nothing can be described yet: {'; '.join(missing)}")
    return here, missing


def _embed_all(
    project: Project, arguments: Sequence[str], models: Sequence[Artifact], tuned: bool
) -> tuple[list[Described], list[np.ndarray]]:
    """Return images of the catalog and image files, with their embeddings for each model."""
    catalog = project.catalog
    queries = [_parse(argument, project) for argument in arguments]
    embedders: list[Embedder] = []
    store: Rows | None = None
    images, rows = [], []
    for query in queries:
        if isinstance(query, ExternalImage):
            images.append(Described(str(query.file), query.file))
        else:
            record = catalog.captioned[query.id]
            images.append(Described(query.id, query.file, record.user_tags, record.tags))
        photo = _photo(query) if tuned else query
        if isinstance(photo, ExternalImage):
            embedders = embedders or [_open_embedder(project, model, tuned) for model in models]
            rows.append([embedder.embed(photo).astype(np.float32) for embedder in embedders])
            continue
        if store is None:
            store = Rows.open(project.embeddings, "embeddings")
            merge(*models, store.artifact, *catalog.artifacts)
        rows.append([store.read([photo.id])[0].astype(np.float32)])
    return images, [np.stack(own) for own in zip(*rows, strict=True)]


def _photo(query: QueryImage) -> QueryImage:
    """Return the file of an image of the catalog as a photo, since its stored row is of another network."""
    if isinstance(query, ExternalImage):
        return query
    if query.file is None:
        raise InputError(f"{query.id}: has no image file, which a tuned network needs")
    content = read_bytes(query.file)
    return ExternalImage(query.file, hashlib.sha256(content).hexdigest(), content)


def _embed_folder(
    project: Project, path: Path, models: Sequence[Artifact], tuned: bool
) -> tuple[list[Described], list[np.ndarray], dict[str, str]]:
    """Return the photos of a folder, their embeddings for each model, and files that are no readable images.

    Activations are kept in the scratch folder, where searches in the folder keep theirs.
    """
    from fne.search.folder import list_folder  # Pillow: slow to import

    found = list_folder(path, project.runtime.workers, project.scratch)
    digests, rows = [image.sha256 for image in found.images], []
    for model in models:
        embedder = _open_embedder(project, model, tuned)
        embedder.prepare(found.images, path)
        rows.append(embedder.rows(digests).astype(np.float32))
    return [Described(image.id, path / image.path) for image in found.images], rows, found.unreadable


def _parse(argument: str, project: Project) -> QueryImage:
    query = parse_query(argument, project.catalog, images_only=True)
    assert not isinstance(query, str), "`images_only` refuses sentences"
    return query


def _open_embedder(project: Project, model: Artifact, tuned: bool) -> "Embedder":
    """Open what computes embeddings like those that a model, tuned or not, was trained on."""
    from fne.finetuning.encode import tuned_extractor  # torch: slow to import
    from fne.search.embed_query import open_embedder

    extractor = tuned_extractor(model, project.runtime)[0] if tuned else None
    places = project.weights, project.statistics
    return open_embedder(model, *places, project.runtime, project.scratch, extractor)


def _table_row(description: Description) -> dict[str, Any]:
    """Return the columns of `catalog`'s tables that a description has."""
    row: dict[str, Any] = {"image": description.image.name}
    if "caption" in description.values:
        row["caption"] = description.values["caption"]
    if "tags" in description.values:
        row["tags"] = description.values["tags"]
    return row


def _cell(path: Path, column: str, value: Any) -> str:
    """Return a cell of CSV that no spreadsheet reads as a formula."""
    if column == "image":
        # `catalog` removes `./` again, but would not find a file of another name.
        return value if plain_cell(value) == value else f"./{value}"
    if not isinstance(value, list):
        return plain_cell(str(value))
    divided = [each for each in value if ";" in each]
    if divided:
        raise InputError(
            f"{path}: the tag {divided[0]!r} has a ';', which separates tags in CSV; use a name that ends "
            "with .jsonl"
        )
    return plain_cell(";".join(value))


# Values that are printed together with another one.
BELONGS = {"sentences": "caption"}
# Concepts of a later part replace those of an earlier one.
PARTS: dict[str, Part] = {
    "captions": Part(
        "models/captioner.safetensors",
        "pipelines/captioning/dvc.yaml",
        ("caption", "concepts"),
        partial(read_describing_file, kind=CAPTIONER),
        describe_captions,
    ),
    "tags": Part(
        "models/tagger.safetensors",
        "pipelines/tagging/dvc.yaml",
        ("tags", "concepts"),
        partial(read_describing_file, kind=TAGGER),
        describe_tags,
    ),
}
# The same with models that were trained together with their image networks.
TUNED_PARTS = {
    name: replace(part, model=part.model.replace("models/", "models/tuned_"), pipeline=TUNED_PIPELINES[kind])
    for (name, part), kind in zip(PARTS.items(), (CAPTIONER, TAGGER), strict=True)
}
