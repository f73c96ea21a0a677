"""What `fne verify` and `fne inspect` do with matching models and their classifiers."""

from pathlib import Path

from fne.matching.classifier_file import CLASSIFIER_FILE, read_classifier
from fne.matching.model_file import MODEL_FILE, read_model, read_model_file
from fne.store.artifact import Contents, Done, Kind, Lines, folder_kind, summary
from fne.store.layout import not_finite
from fne.store.tensors import NETWORK, WeightsFile, weights_kind


def _read_model(path: Path) -> WeightsFile:
    matcher, artifact = read_model(path)
    return artifact, {name: value.numpy() for name, value in matcher.state_dict().items()}


def _check_classifier(path: Path, done: Done) -> Contents:
    found = read_classifier(path)
    values = {"weight": found.weight} | ({} if found.bias is None else {"bias": found.bias})
    return Contents(found.artifact, faults=not_finite(path, values))


def _describe_classifier(path: Path) -> Lines:
    found = read_classifier(path)
    classes, dim = found.weight.shape
    what = f"{classes:,} classes of {len(found.labels):,} training images, {dim:,} dimensions"
    return summary(found.artifact, f"classifier, {what}")


def _check_tuned(path: Path, done: Done) -> Contents:
    file = read_model_file(path)
    read_model(path)
    return Contents(file.artifact, faults=not_finite(path, file.weights))


def _describe_tuned(path: Path) -> Lines:
    file = read_model_file(path)
    total = sum(value.size for value in file.weights.values())
    own = sum(value.size for name, value in file.weights.items() if name.startswith(NETWORK))
    return summary(
        file.artifact, f"tuned network and model, {total:,} weights, {own:,} of them of the network"
    )


FOLDER = folder_kind(MODEL_FILE, CLASSIFIER_FILE)
CLASSIFIER = Kind(
    CLASSIFIER_FILE,
    _check_classifier,
    lambda path: Contents(read_classifier(path).artifact),
    _describe_classifier,
)
TUNED = Kind(
    "tuned.safetensors",
    _check_tuned,
    lambda path: Contents(read_model_file(path, NETWORK).artifact),
    _describe_tuned,
)
MODEL = weights_kind(".safetensors", _read_model)
