"""What `fne verify` and `fne inspect` do with taggers, captioners and what these write."""

from collections import Counter
from pathlib import Path

from fne.core.errors import InputError
from fne.core.terminal import printable
from fne.describing.annotations import CAPTIONS_FORMAT, read_tagged, read_written
from fne.describing.model_file import FORMAT, read_describing_file, read_describing_model
from fne.describing.settings import TAGGER as TAGGER_NAME
from fne.store.artifact import Contents, Done, Kind, Lines, names_format, repeated, summary
from fne.store.layout import not_finite
from fne.store.tensors import WeightsFile, read_description, weight_lines, weights_kind


def _is_describing_model(path: Path) -> bool:
    """Distinguish a tagger or captioner from other models, of which a damaged one counts as one."""
    if path.suffix != ".safetensors" or path.is_dir():
        return False
    try:
        return read_description(path).get("format") == FORMAT.name
    except InputError:
        return False


def _read_describing_model(path: Path) -> WeightsFile:
    model, file = read_describing_model(path)
    return file.artifact, {name: value.numpy() for name, value in model.state_dict().items()}


def _check_tagger(path: Path, done: Done) -> Contents:
    model, file = read_describing_model(path, TAGGER_NAME)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    faults = [*not_finite(path, state), *repeated(path, file.vocabulary.concepts.names)]
    return Contents(file.artifact, faults=faults)


def _describe_tagger(path: Path) -> Lines:
    model, tagger = read_describing_model(path, TAGGER_NAME)
    concepts, user_tags = tagger.vocabulary.concepts, tagger.vocabulary.user_tags
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    weights = sum(value.size for value in state.values())
    counts = zip(concepts.names[:8], concepts.counts, strict=False)
    frequent = ", ".join(f"{name} {count}" for name, count in counts)
    return summary(
        tagger.artifact,
        f"tagger, {weights:,} weights, {len(concepts.names)} concepts",
        f"concepts  {frequent} … of {concepts.images} training images",
        *([f"user tags {len(user_tags)}: {', '.join(user_tags[:8])}"] if user_tags else []),
        *weight_lines(state),
    )


def _check_tags(path: Path, done: Done) -> Contents:
    found = read_tagged(path)
    known = set(found.concepts.names)
    faults = repeated(path, [image.id for image in found.images])
    for image in found.images:
        foreign = sorted({*(image.tags or []), *(image.top or [])} - known)
        if foreign:
            faults.append(f"{path}: {image.id!r} has the tag {foreign[0]!r}, which is not a concept")
        if image.probabilities is not None and len(image.probabilities) != len(known):
            faults.append(
                f"{path}: {image.id!r} has {len(image.probabilities)} of {len(known)} probabilities"
            )
    return Contents(found.artifact, faults=faults)


def _describe_tags(path: Path) -> Lines:
    found = read_tagged(path)
    written = [tag for image in found.images for tag in image.tags or []]
    frequent = ", ".join(f"{name} {count}" for name, count in Counter(written).most_common(8))
    what = f"{len(written)} tags of {len(found.images)} images"
    return summary(found.artifact, what, f"frequent  {frequent or 'none'}")


def _open_written(path: Path) -> Contents:
    written, artifact = read_written(path)
    return Contents(artifact, faults=repeated(path, list(written)))


def _describe_written(path: Path) -> Lines:
    written, artifact = read_written(path)
    sentences = sum(len(each.sentences) for each in written.values())
    examples = list(written.values())[:3]
    return summary(
        artifact,
        f"captions that a model wrote, {sentences} sentences for {len(written)} images",
        *(f"{printable(each.id)}: {printable(each.caption)}" for each in examples),
    )


TAGGER = Kind(
    "tagger.safetensors",
    _check_tagger,
    lambda path: Contents(read_describing_file(path).artifact),
    _describe_tagger,
)
DESCRIBING = weights_kind(
    ".safetensors",
    _read_describing_model,
    lambda path: read_describing_file(path).artifact,
    _is_describing_model,
)
TAGS = Kind(
    "tags.jsonl",
    _check_tags,
    lambda path: Contents(read_tagged(path).artifact),
    _describe_tags,
    lambda path: path.name in ("tags.jsonl", "tuned_tags.jsonl"),
)
WRITTEN = Kind(
    "written captions",
    lambda path, _: _open_written(path),
    _open_written,
    _describe_written,
    lambda path: path.suffix == ".jsonl" and names_format(path, CAPTIONS_FORMAT),
)
