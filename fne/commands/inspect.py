"""`fne inspect`: what an artifact is, in words."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from fne.captions.vocabulary import read_vocabulary
from fne.commands.kinds import STORE, kind_of
from fne.commands.tracked import CAPTIONS, content_md5, in_project, pipeline_outs
from fne.core.errors import InputError
from fne.matching.modelfile import read_model
from fne.store.arrays import read_arrays
from fne.store.catalog import SPLITS, read_captions, read_images
from fne.store.rows import Rows

Lines = list[str]


def inspect_path(path: Path) -> str:
    """Return a description of the artifact at `path`, for people to read; its digests are checked.

    Raises:
        InputError: if there is nothing at `path`, or nothing of ours.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; run `dvc repro`, or `dvc pull` to fetch it")
    out = pipeline_outs().get(in_project(path))
    inspect = KINDS.get(kind_of(path))
    lines = inspect(path) if inspect else []
    if not lines and out is None:
        raise InputError(f"{path}: not an artifact of the pipeline; those are {', '.join(KINDS)}")
    return "\n".join([*(lines or _files(path)), *([f"  made by   stage {out.stage}"] if out else [])])


def _rows(path: Path) -> Lines:
    rows = Rows.open(path)
    rows.verify()
    size = sum(file.stat().st_size for file in path.iterdir())
    layers = ", ".join(f"{layer.name} {layer.features}" for layer in rows.layers)
    return [
        f"{path}: {rows.artifact.name}, {len(rows.ids)} rows of {rows.features} values, {size:,} bytes",
        f"  type      {rows.dtype}",
        f"  digest    {rows.artifact.digest}",
        *_splits(rows),
        f"  layers    {layers}",
        *_processors(rows),
        *_origin(rows.artifact.settings, rows.artifact.lineage),
    ]


def _splits(rows: Rows) -> Lines:
    """Say how many rows each split has, where a catalog is at hand; a caption is in its image's split."""
    if not CAPTIONS.exists():
        return []
    captioned, _ = read_captions(CAPTIONS)
    split_of = {each: record.split for record in captioned for each in (record.id, *record.caption_ids)}
    counts = Counter(split_of.get(row_id, "not in the catalog") for row_id in rows.ids)
    order = [*SPLITS, "not in the catalog"]
    return [f"  rows      {', '.join(f'{counts[each]} {each}' for each in order if counts[each]) or 'none'}"]


def _processors(rows: Rows) -> Lines:
    made = rows.processors
    if isinstance(made, dict):
        made = ", ".join(f"{name} ({len(ids)} rows)" for name, ids in made.items())
    return [f"  computed  by {made}"] if made else []


def _arrays(path: Path) -> Lines:
    arrays = read_arrays(path)
    kinds = {
        name: "text" if value.dtype.kind == "O" else str(value.dtype) for name, value in arrays.values.items()
    }
    return [
        f"{path}: {arrays.artifact.name}, {path.stat().st_size:,} bytes",
        f"  digest    {arrays.artifact.digest}",
        *(f"  {name:<20} {kinds[name]} {value.shape}" for name, value in arrays.values.items()),
        *_origin(arrays.artifact.settings, arrays.artifact.lineage),
    ]


def _model(path: Path) -> Lines:
    matcher, artifact = read_model(path)
    state = matcher.state_dict()
    weights = sum(value.numel() for value in state.values())
    return [
        f"{path}: model, {weights:,} weights, {path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        *(f"  {name:<28} {tuple(value.shape)}" for name, value in sorted(state.items())),
        *_origin(artifact.settings, artifact.lineage),
    ]


def _vocabulary(path: Path) -> Lines:
    vocabulary = read_vocabulary(path)
    return [
        f"{path}: vocabulary, {len(vocabulary.words) - 1} words, {path.stat().st_size:,} bytes",
        f"  digest    {vocabulary.artifact.digest}",
        f"  frequent  {' '.join(vocabulary.words[1:11])}",
        *_origin(vocabulary.artifact.settings, {}),
    ]


def _images(path: Path) -> Lines:
    images, artifact = read_images(path)
    size = sum(image.bytes for image in images)
    return [
        f"{path}: catalog of {len(images)} images, {path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        f"  images    {size:,} bytes in all",
    ]


def _captions(path: Path) -> Lines:
    captioned, artifact = read_captions(path)
    images = Counter(record.split for record in captioned)
    captions = Counter(dict.fromkeys(SPLITS, 0))
    for record in captioned:
        captions[record.split] += len(record.captions)
    return [
        f"{path}: catalog of {sum(captions.values())} captions of {len(captioned)} images, "
        f"{path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        *(
            f"  {split:<9} {images[split]} images, {captions[split]} captions"
            for split in SPLITS
            if images[split]
        ),
    ]


def _metrics(path: Path) -> Lines:
    try:
        splits = json.loads(path.read_bytes())
        lines = [line for split, metrics in splits.items() for line in _table(path, split, metrics)]
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None
    except (KeyError, TypeError, AttributeError):
        return []  # not a table of metrics
    return lines


def _table(path: Path, split: str, metrics: dict[str, Any]) -> Lines:
    names = list(metrics["image_to_text"])
    rows = {"image to text": metrics["image_to_text"], "text to image": metrics["text_to_image"]}
    return [
        f"{path}: {split}, {metrics['images']} images, {metrics['captions']} captions",
        "  " + " " * 13 + "".join(f"{name.replace('_', ' '):>13}" for name in names),
        *(f"  {title}" + "".join(f"{row[name]:>13.1f}" for name in names) for title, row in rows.items()),
        f"  sum of recalls {metrics['rsum']:.1f} of {200 * sum(name.startswith('R@') for name in names)}",
    ]


def _page(path: Path) -> Lines:
    return [f"{path}: the report; open {path.resolve().as_uri()} in a browser"]


def _files(path: Path) -> Lines:
    """Describe what the pipeline makes besides, such as a folder of images."""
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    size = sum(each.stat().st_size for each in files)
    return [f"{path}: {len(files)} files, {size:,} bytes", f"  md5       {content_md5(path)}"]


def _origin(settings: dict[str, Any], lineage: dict[str, Any]) -> Lines:
    lines = ["  made with", *(f"    {key}: {value}" for key, value in settings.items())] if settings else []
    if lineage:
        lines += ["  made from", *(f"    {name:<14} {entry['digest']}" for name, entry in lineage.items())]
    return lines


KINDS = {
    STORE: _rows,
    "images.jsonl": _images,
    "captions.jsonl": _captions,
    "vocabulary.json": _vocabulary,
    ".json": _metrics,
    ".h5": _arrays,
    ".safetensors": _model,
    ".html": _page,
}
