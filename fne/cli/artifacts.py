"""The kinds of artifacts, and what `fne inspect` and `fne verify` do with each.

A kind is known by the name of a path and by what is there. Its handlers are the three functions of
`Kind`; the table `KINDS` holds them all. They raise `InputError` if an artifact cannot be read.
"""

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.core.terminal import printable
from fne.datasets.rejects import COLUMNS
from fne.describing.annotations import CAPTIONS_FORMAT, read_tagged, read_written
from fne.describing.model_file import CAPTIONER, read_describer, read_describer_file
from fne.describing.model_file import FORMAT as DESCRIBER
from fne.describing.model_file import TAGGER as TAGGER_NAME
from fne.evaluation.baseline import floor_artifact
from fne.evaluation.metrics.recall import chosen_by, small_split_warning
from fne.evaluation.score_captions import best_baseline
from fne.matching.classifier_file import read_classifier
from fne.matching.model_file import (
    NETWORK,
    is_imported,
    is_tuned,
    read_model,
    read_model_file,
    read_tuned_artifact,
)
from fne.report.record import page_artifact
from fne.report.sources import read_tables
from fne.store.arrays import Arrays, read_arrays
from fne.store.artifact import Artifact, Format
from fne.store.catalog import (
    CAPTIONS_FILE,
    RECORD_NAME,
    SPLITS,
    Captioned,
    read_captions,
    read_images,
    read_record,
    split_artifact,
)
from fne.store.checksums import METRICS_SEAL, parse_metrics, read_metrics
from fne.store.history import SEAL, read_history_seal
from fne.store.layout import MANIFEST, value_fault
from fne.store.rows import Rows
from fne.store.tensors import read_description
from fne.text.tokens import tokens_fault
from fne.text.vocabulary import read_vocabulary

STORE, HISTORY, FOLDER = "row stores", "history", "folder"
IMAGES, CAPTIONS = "images.jsonl", "captions.jsonl"
TAGGER, TAGS = "tagger.safetensors", "tags.jsonl"
CLASSIFIER = "classifier.safetensors"
TUNED = "tuned.safetensors"
NAMED = (
    IMAGES,
    CAPTIONS,
    RECORD_NAME,
    "rejects.csv",
    "vocabulary.json",
    "floor.json",
    "training.json",
    "tuning.json",
    TAGGER,
    TAGS,
    "tags.json",
    CLASSIFIER,
    TUNED,
)
WRITTEN = "written captions"
NOT_IN_CATALOG = "not in the catalog"

HEAD = 256  # bytes of a text file that hold its seal and its format

Lines = list[str]
# Called with the number of bytes that were checked.
Done = Callable[[int], object]


@dataclass(frozen=True)
class Contents:
    """What an artifact holds.

    Attributes:
        artifact: its name, digest, settings and lineage; None for files that have none.
        splits: the splits of a catalog, which other artifacts may be made from.
        image_ids: the images that it has an entry for.
        caption_ids: the captions that it has an entry for.
        faults: one line for each fault, without advice.
    """

    artifact: Artifact | None = None
    splits: list[Artifact] = field(default_factory=list)
    image_ids: list[str] | None = None
    caption_ids: list[str] | None = None
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kind:
    """The handlers of one kind of artifact.

    Attributes:
        check: reads everything, and returns what is there with all faults.
        open: reads as little as possible, and returns what the artifact says that it is.
        describe: returns the lines of `fne inspect`, none if there is nothing special to say.
    """

    check: Callable[[Path, Done], Contents]
    open: Callable[[Path], Contents] | None = None
    describe: Callable[[Path], Lines] | None = None


def artifact_kind(path: Path) -> str:
    """Return the kind of the artifact at `path`: a key of `KINDS`, or something that is none."""
    if not path.is_dir():
        if path.name == CAPTIONS and _names_format(path, CAPTIONS_FORMAT):
            return WRITTEN
        return path.name if path.name in NAMED else path.suffix
    if (path / MANIFEST).exists() or any(path.glob("shard-*.h5")):
        return STORE
    return HISTORY if (path / SEAL).exists() or (path / "plots").is_dir() else FOLDER


def _check_rows(path: Path, done: Done) -> Contents:
    rows = Rows.open(path)
    faults = []
    for number, shard in enumerate(rows.shards):
        try:
            block = rows.verified_block(number)
            fault = value_fault(block, rows.dtype, shard.ids, rows.layers)
            if fault:
                faults.append(f"{path / shard.file}: {fault}")
            done(block.nbytes)
        except InputError as error:
            faults.append(error.message)
    files = {MANIFEST, *(shard.file for shard in rows.shards)}
    foreign = sorted({each.name for each in path.iterdir()} - files)
    faults += [f"{path}: '{name}' does not belong to the store, move it elsewhere" for name in foreign]
    faults += _repeated(path, rows.ids)
    if rows.artifact.name == "caption_vectors":
        return Contents(rows.artifact, caption_ids=rows.ids, faults=faults)
    return Contents(rows.artifact, image_ids=rows.ids, faults=faults)


def _describe_rows(path: Path) -> Lines:
    rows = Rows.open(path)
    rows.verify()
    size = sum(file.stat().st_size for file in path.iterdir())
    layers = ", ".join(f"{layer.name} {layer.features}" for layer in rows.layers)
    return [
        f"{path}: {rows.artifact.name}, {len(rows.ids)} rows of {rows.features} values, {size:,} bytes",
        f"  type      {rows.dtype}",
        f"  digest    {rows.artifact.digest}",
        *_rows_per_split(rows),
        f"  layers    {layers}",
        *_hardware(rows),
        *_origin(rows.artifact),
    ]


def _rows_per_split(rows: Rows) -> Lines:
    """Count the rows of each split, if there is a catalog; a caption is in the split of its image."""
    if not CAPTIONS_FILE.exists():
        return []
    captioned, _ = read_captions(CAPTIONS_FILE)
    split_of = {each: record.split for record in captioned for each in (record.id, *record.caption_ids)}
    counts = Counter(split_of.get(row_id, NOT_IN_CATALOG) for row_id in rows.ids)
    order = [*SPLITS, NOT_IN_CATALOG]
    return [f"  rows      {', '.join(f'{counts[each]} {each}' for each in order if counts[each]) or 'none'}"]


def _hardware(rows: Rows) -> Lines:
    made = rows.hardware
    if isinstance(made, dict):
        made = ", ".join(f"{name} ({len(ids)} rows)" for name, ids in made.items())
    return [f"  computed  by {made}"] if made else []


def _open_images(path: Path) -> Contents:
    images, artifact = read_images(path)
    ids = [image.id for image in images]
    return Contents(artifact, image_ids=ids, faults=_repeated(path, ids))


def _describe_images(path: Path) -> Lines:
    images, artifact = read_images(path)
    size = sum(image.bytes for image in images)
    return [
        f"{path}: catalog of {len(images)} images, {path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        f"  images    {size:,} bytes in all",
    ]


def _open_captions(path: Path) -> Contents:
    captioned, artifact = read_captions(path)
    ids = [record.id for record in captioned]
    return Contents(
        artifact,
        [split_artifact(path, captioned, split) for split in SPLITS],
        ids,
        [each for record in captioned for each in record.caption_ids],
        _repeated(path, ids),
    )


def _describe_captions(path: Path) -> Lines:
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
        *_tags(captioned),
    ]


def _tags(captioned: list[Captioned]) -> Lines:
    """Count the tags of a catalog, if it has any, and the hints."""
    lines = []
    for name, each in (
        ("tags", [set(record.tags) for record in captioned]),
        ("hints", [set(record.hints) for record in captioned]),
    ):
        names = set[str]().union(*each)
        if names:
            lines.append(f"  {name:<9} {len(names)} different ones on {sum(map(bool, each))} images")
    return lines


def _open_record(path: Path) -> Contents:
    return Contents(read_record(path))


def _describe_record(path: Path) -> Lines:
    record = read_record(path)
    files = [f"    {name:<14} {md5} (MD5)" for name, md5 in record.files.items()]
    return [f"{path}: how the catalog was made", *_origin(record), *files]


def _open_rejects(path: Path) -> Contents:
    content = read_bytes(path)
    try:
        rows = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: not a table of rejects ({error})") from None
    valid = rows[:1] == [list(COLUMNS)] and all(len(row) == len(COLUMNS) for row in rows)
    faults = [] if valid else [f"{path}: expected the columns {', '.join(COLUMNS)}"]
    return Contents(Artifact(path, "rejects", hashlib.sha256(content).hexdigest()), faults=faults)


def _open_written(path: Path) -> Contents:
    written, artifact = read_written(path)
    return Contents(artifact, faults=_repeated(path, list(written)))


def _describe_written(path: Path) -> Lines:
    written, artifact = read_written(path)
    sentences = sum(len(each.sentences) for each in written.values())
    examples = list(written.values())[:3]
    return [
        f"{path}: captions that a model wrote, {sentences} sentences for {len(written)} images, "
        f"{path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        *(f"  {printable(each.id)}: {printable(each.caption)}" for each in examples),
        *_origin(artifact),
    ]


def _open_vocabulary(path: Path) -> Contents:
    vocabulary = read_vocabulary(path)
    return Contents(vocabulary.artifact, faults=_repeated(path, vocabulary.words))


def _describe_vocabulary(path: Path) -> Lines:
    vocabulary = read_vocabulary(path)
    return [
        f"{path}: vocabulary, {len(vocabulary.words) - 1} words, {path.stat().st_size:,} bytes",
        f"  digest    {vocabulary.artifact.digest}",
        f"  frequent  {' '.join(vocabulary.words[1:11])}",
        *_origin(vocabulary.artifact),
    ]


def _check_arrays(path: Path, done: Done) -> Contents:
    arrays = read_arrays(path)
    faults = _not_finite(path, arrays.values)
    check = ARRAYS.get(arrays.artifact.name)
    ids = arrays.texts("ids") if arrays.artifact.name == "tokens" else None
    return Contents(arrays.artifact, caption_ids=ids, faults=faults + (check(path, arrays) if check else []))


def _check_tokens(path: Path, arrays: Arrays) -> Lines:
    fault = tokens_fault(arrays)
    return [f"{path}: {fault}"] * bool(fault) + _repeated(path, arrays.texts("ids"))


def _check_statistics(path: Path, arrays: Arrays) -> Lines:
    return [f"{path}: has negative deviations"] if (arrays["deviation"] < 0).any() else []


def _describe_arrays(path: Path) -> Lines:
    arrays = read_arrays(path)
    types = {
        name: "text" if value.dtype.kind == "O" else str(value.dtype) for name, value in arrays.values.items()
    }
    return [
        f"{path}: {arrays.artifact.name}, {path.stat().st_size:,} bytes",
        f"  digest    {arrays.artifact.digest}",
        *(f"  {name:<20} {types[name]} {value.shape}" for name, value in arrays.values.items()),
        *_origin(arrays.artifact),
    ]


def _read_any_model(path: Path) -> tuple[Artifact, dict[str, Tensor]]:
    """Read a matching model, a tagger or a captioner: what it is, and its weights."""
    if _is_describer(path):
        describer, file = read_describer(path)
        return file.artifact, describer.state_dict()
    if is_imported(artifact := read_model_file(path).artifact):
        return artifact, {}
    matcher, artifact = read_model(path)
    return artifact, matcher.state_dict()


def _is_describer(path: Path) -> bool:
    """Distinguish a tagger or captioner from a matching model, which also reports what is damaged."""
    try:
        return read_description(path).get("format") == DESCRIBER.name
    except InputError:
        return False


def _open_model(path: Path) -> Contents:
    if _is_describer(path):
        return Contents(read_describer_file(path).artifact)
    return Contents(_read_any_model(path)[0])


def _check_model(path: Path, done: Done) -> Contents:
    artifact, weights = _read_any_model(path)
    state = {name: value.numpy() for name, value in weights.items()}
    return Contents(artifact, faults=_not_finite(path, state))


def _describe_model(path: Path) -> Lines:
    artifact, state = _read_any_model(path)
    weights = sum(value.numel() for value in state.values())
    return [
        f"{path}: {artifact.name}, {weights:,} weights, {path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        *(f"  {name:<28} {tuple(value.shape)}" for name, value in sorted(state.items())),
        *_origin(artifact),
    ]


def _check_tagger(path: Path, done: Done) -> Contents:
    describer, file = read_describer(path, TAGGER_NAME)
    state = {name: value.numpy() for name, value in describer.state_dict().items()}
    names = file.vocabulary.concepts.names
    return Contents(file.artifact, faults=[*_not_finite(path, state), *_repeated(path, names)])


def _open_tagger(path: Path) -> Contents:
    return Contents(read_describer_file(path).artifact)


def _describe_tagger(path: Path) -> Lines:
    describer, tagger = read_describer(path, TAGGER_NAME)
    concepts, hints, state = tagger.vocabulary.concepts, tagger.vocabulary.hints, describer.state_dict()
    weights = sum(value.numel() for value in state.values())
    frequent = ", ".join(
        f"{name} {count}" for name, count in zip(concepts.names[:8], concepts.counts, strict=False)
    )
    return [
        f"{path}: tagger, {weights:,} weights, {len(concepts.names)} concepts, {path.stat().st_size:,} bytes",
        f"  digest    {tagger.artifact.digest}",
        f"  concepts  {frequent} … of {concepts.images} training images",
        *([f"  hints     {len(hints)}: {', '.join(hints[:8])}"] if hints else []),
        *(f"  {name:<28} {tuple(value.shape)}" for name, value in sorted(state.items())),
        *_origin(tagger.artifact),
    ]


def _check_tags(path: Path, done: Done) -> Contents:
    found = read_tagged(path)
    known = set(found.concepts)
    faults = _repeated(path, [image.id for image in found.images])
    for image in found.images:
        foreign = sorted({*(image.tags or []), *(image.top or [])} - known)
        if foreign:
            faults.append(f"{path}: {image.id!r} has the tag {foreign[0]!r}, which is no concept")
        if image.probabilities is not None and len(image.probabilities) != len(known):
            faults.append(
                f"{path}: {image.id!r} has {len(image.probabilities)} of {len(known)} probabilities"
            )
    return Contents(found.artifact, faults=faults)


def _describe_tags(path: Path) -> Lines:
    found = read_tagged(path)
    written = [tag for image in found.images for tag in image.tags or []]
    counts = Counter(written).most_common(8)
    return [
        f"{path}: {len(written)} tags of {len(found.images)} images, {path.stat().st_size:,} bytes",
        f"  digest    {found.artifact.digest}",
        f"  frequent  {', '.join(f'{name} {count}' for name, count in counts) or 'none'}",
        *_origin(found.artifact),
    ]


def _check_classifier(path: Path, done: Done) -> Contents:
    found = read_classifier(path)
    values = {"weight": found.weight} | ({} if found.bias is None else {"bias": found.bias})
    return Contents(found.artifact, faults=_not_finite(path, values))


def _describe_classifier(path: Path) -> Lines:
    found = read_classifier(path)
    classes, dim = found.weight.shape
    what = f"{classes:,} classes of {len(found.labels):,} training images, {dim:,} dimensions"
    return [
        f"{path}: classifier, {what if classes else 'empty: no instance loss'}, "
        f"{path.stat().st_size:,} bytes",
        f"  digest    {found.artifact.digest}",
        *_origin(found.artifact),
    ]


def _check_tuned(path: Path, done: Done) -> Contents:
    if not is_tuned(path):
        return _open_tuned(path)
    file = read_model_file(path)
    read_model(path)
    return Contents(file.artifact, faults=_not_finite(path, file.weights))


def _open_tuned(path: Path) -> Contents:
    return Contents(read_tuned_artifact(path))


def _describe_tuned(path: Path) -> Lines:
    artifact = read_tuned_artifact(path)
    if not is_tuned(path):
        return [
            f"{path}: nothing was tuned, because finetune.epochs is 0; {path.stat().st_size:,} bytes",
            f"  digest    {artifact.digest}",
        ]
    weights = read_model_file(path).weights
    total = sum(value.size for value in weights.values())
    own = sum(value.size for name, value in weights.items() if name.startswith(NETWORK))
    return [
        f"{path}: tuned network and model, {total:,} weights, {own:,} of them of the network, "
        f"{path.stat().st_size:,} bytes",
        f"  digest    {artifact.digest}",
        *_origin(artifact),
    ]


def _describe_label_metrics(path: Path) -> Lines:
    splits = read_metrics(path, "run `dvc repro pipelines/tagging/dvc.yaml`")
    try:
        return [line for name, metrics in splits.items() for line in _label_table(path, name, metrics)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not the metrics of tags ({error!r}); run `dvc repro pipelines/tagging/dvc.yaml`"
        ) from None


def _label_table(path: Path, name: str, metrics: dict[str, Any]) -> Lines:
    answers = {each: values for each, values in metrics.items() if isinstance(values, dict)}
    columns = ("class_precision", "class_recall", "class_f1", "image_f1", "pooled_f1", "predicted_length")
    ranked = f", mAP {metrics['mAP']:.1f}" if "mAP" in metrics else ""
    unlearned = metrics["unlearned_tags"]
    left_out = f"; {unlearned} true tags are no concepts" if unlearned else ""
    return [
        f"{path}: {name}, {metrics['images']} images, {metrics['concepts']} concepts{ranked}{left_out}",
        "  " + " " * 10 + "".join(f"{column.replace('_', ' '):>18}" for column in columns),
        *(
            f"  {each:<10}" + "".join(f"{values[column]:>18.1f}" for column in columns)
            for each, values in answers.items()
        ),
        *_chosen(name),
    ]


def _check_history(path: Path, done: Done) -> Contents:
    read_tables(path)
    if read_history_seal(path).points:
        _check_json(path / "metrics.json")
    return _open_history(path)


def _open_history(path: Path) -> Contents:
    return Contents(read_history_seal(path).artifact)


def _check_json(path: Path) -> bytes:
    try:
        content = read_bytes(path)
        json.loads(content, parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error})") from None
    return content


def _check_metrics(path: Path, done: Done) -> Contents:
    content = _check_json(path)
    try:
        parse_metrics(content)
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error})") from None
    return Contents()


def _check_floor(path: Path, done: Done) -> Contents:
    _check_metrics(path, done)
    return _open_floor(path)


def _open_floor(path: Path) -> Contents:
    return Contents(floor_artifact(path))


def _describe_metrics(path: Path) -> Lines:
    if METRICS_SEAL.encode() not in _check_json(path):
        return []  # not metrics of a stage
    splits = read_metrics(path, "run `dvc repro`")
    try:
        return [line for split, metrics in splits.items() for line in _metrics_table(path, split, metrics)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []  # not a table of metrics


def _caption_table(path: Path, split: str, metrics: dict[str, Any]) -> Lines:
    systems = [name for name, value in metrics.items() if isinstance(value, dict)]
    names = [name for name in metrics[systems[0]] if "-" in name or name == "METEOR"]
    several = "CIDEr-D" in names  # images
    return [
        f"{path}: {split}, captions of {metrics['images']} images",
        "  " + " " * 10 + "".join(f"{name:>9}" for name in [*names, "words", "distinct"]),
        *(
            f"  {system:<10}"
            + "".join(f"{metrics[system][name]:>9.3f}" for name in names)
            + f"{metrics[system]['words_used']:>9.0f}{metrics[system]['distinct_captions']:>9.0%}"
            for system in systems
        ),
        *[_above_baseline(metrics)] * several,
        *["  the captioner writes the same for (nearly) all images"] * bool(metrics["collapsed"]),
        *_chosen(split),
    ]


def _above_baseline(metrics: dict[str, Any]) -> str:
    """Compare the captioner with the best baseline."""
    best = best_baseline(metrics)
    difference = metrics[CAPTIONER]["CIDEr-D"] - metrics[best]["CIDEr-D"]
    return f"  CIDEr-D of the captioner: {difference:+.3f} to the best baseline, '{best}'"


def _metrics_table(path: Path, split: str, metrics: dict[str, Any]) -> Lines:
    if CAPTIONER in metrics:
        return _caption_table(path, split, metrics)
    names = list(metrics["image_to_text"])
    rows = {"image to text": metrics["image_to_text"], "text to image": metrics["text_to_image"]}
    recalls = sum(name.startswith("R@") for name in names)
    warning = small_split_warning(metrics["images"], metrics["guessing"], recalls)
    return [
        f"{path}: {split}, {metrics['images']} images, {metrics['captions']} captions",
        "  " + " " * 13 + "".join(f"{name.replace('_', ' '):>13}" for name in names),
        *(f"  {title}" + "".join(f"{row[name]:>13.1f}" for name in names) for title, row in rows.items()),
        f"  sum of recalls {metrics['rsum']:.1f} of {200 * recalls}; guessing {metrics['guessing']:.1f}",
        *([f"  Warning: {warning}"] if warning else []),
        *_chosen(split),
    ]


def _chosen(name: str) -> Lines:
    """Warn of figures of the split that chose the epoch."""
    warning = chosen_by(name)
    return [f"  Warning: {warning}"] if warning else []


def _describe_tuning(path: Path) -> Lines:
    return _describe_training(path, "fine-tuning", "finetune")


def _describe_training(path: Path, title: str = "training", stage: str = "train") -> Lines:
    remedy = f"run `dvc repro {stage}`"
    found = read_metrics(path, remedy)
    if found == {"tuned": False}:
        return [f"{path}: the image network was not tuned"]
    try:
        went = "started" if found["started"] else "did not start"
        epochs = f"best epoch {found['best_epoch']} of {found['epochs']}, {found['updates']:,} updates"
        table = _metrics_table(path, "validation", found["validation"])
        collapsed = ", collapsed to one point" if found["collapsed"] else ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged ({error!r}); {remedy}") from None
    return [*table, f"  {title}  {went}{collapsed}; {epochs}"]


def _check_page(path: Path, done: Done) -> Contents:
    content = read_bytes(path).strip().lower()
    complete = content.startswith(b"<!doctype html>") and content.endswith(b"</html>")
    return Contents(page_artifact(path), faults=[] if complete else [f"{path}: not a complete HTML page"])


def _describe_page(path: Path) -> Lines:
    return [f"{path}: the report; open {path.resolve().as_uri()} in a browser"]


def _origin(artifact: Artifact) -> Lines:
    lines = []
    if artifact.settings:
        lines += ["  made with", *(f"    {key}: {value}" for key, value in artifact.settings.items())]
    if artifact.lineage:
        entries = artifact.lineage.items()
        lines += ["  made from", *(f"    {name:<14} {entry['digest']}" for name, entry in entries)]
    return lines


def _names_format(path: Path, form: Format) -> bool:
    """Return whether the head of a text file names a format."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f'"format": "{form.name}"'.encode() in file.read(HEAD)


def _repeated(path: Path, ids: list[str]) -> Lines:
    repeated = [each for each, count in Counter(ids).items() if count > 1]
    return [f"{path}: repeats {len(repeated)} ids, the first is {repeated[0]!r}"] if repeated else []


def _not_finite(path: Path, values: Mapping[str, np.ndarray]) -> Lines:
    return [
        f"{path}: '{name}' has {int((~np.isfinite(value)).sum())} values that are not finite"
        for name, value in values.items()
        if value.dtype.kind == "f" and not np.isfinite(value).all()
    ]


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


# Checks of arrays by the name of their artifact.
ARRAYS: dict[str, Callable[[Path, Arrays], Lines]] = {
    "statistics": _check_statistics,
    "tokens": _check_tokens,
}

KINDS: dict[str, Kind] = {
    STORE: Kind(_check_rows, lambda path: Contents(Rows.open(path).artifact), _describe_rows),
    IMAGES: Kind(lambda path, done: _open_images(path), _open_images, _describe_images),
    CAPTIONS: Kind(lambda path, done: _open_captions(path), _open_captions, _describe_captions),
    RECORD_NAME: Kind(lambda path, done: _open_record(path), _open_record, _describe_record),
    WRITTEN: Kind(lambda path, done: _open_written(path), _open_written, _describe_written),
    "rejects.csv": Kind(lambda path, done: _open_rejects(path), _open_rejects),
    "vocabulary.json": Kind(
        lambda path, done: _open_vocabulary(path), _open_vocabulary, _describe_vocabulary
    ),
    "floor.json": Kind(_check_floor, _open_floor, _describe_metrics),
    "training.json": Kind(_check_metrics, None, _describe_training),
    "tuning.json": Kind(_check_metrics, None, _describe_tuning),
    ".json": Kind(_check_metrics, None, _describe_metrics),
    ".h5": Kind(_check_arrays, lambda path: Contents(read_arrays(path).artifact), _describe_arrays),
    ".safetensors": Kind(_check_model, _open_model, _describe_model),
    TAGGER: Kind(_check_tagger, _open_tagger, _describe_tagger),
    TAGS: Kind(_check_tags, lambda path: Contents(read_tagged(path).artifact), _describe_tags),
    "tags.json": Kind(_check_metrics, None, _describe_label_metrics),
    CLASSIFIER: Kind(
        _check_classifier, lambda path: Contents(read_classifier(path).artifact), _describe_classifier
    ),
    TUNED: Kind(_check_tuned, _open_tuned, _describe_tuned),
    HISTORY: Kind(_check_history, _open_history),
    ".html": Kind(_check_page, None, _describe_page),
}
