"""The classifier of the instance loss on disk, in a file of its own.

Search, `encode` and `dvc pull` of the model do not need it, and with a class per training image it can be
larger than the model. It stands beside the model, and is there only if the loss has classes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core.errors import InputError
from fne.store.artifact import Artifact, Format, describe, described, merge, repair_hint
from fne.store.tensors import read_sealed_arrays, write_sealed

if TYPE_CHECKING:
    from fne.matching.instance_loss import Classes

FORMAT = Format("fne-classifier", 1)
CLASSIFIER_FILE = "classifier.safetensors"


@dataclass(frozen=True)
class ClassifierFile:
    """A classifier as its file has it."""

    artifact: Artifact  # its lineage names the model that it was trained with
    weight: np.ndarray  # (classes, embed_dim)
    bias: np.ndarray | None  # (classes)
    labels: np.ndarray  # the class of each training image, in the order of their sorted ids


def write_classifier(path: Path, classes: "Classes", settings: dict[str, Any], model: Artifact) -> None:
    """Write the classifier that a model was trained with, and the classes of the images."""
    import torch  # torch: slow to import

    tensors = dict(classes.loss.state_dict())
    tensors["labels"] = torch.tensor([label for _, label in sorted(classes.labels.items())])
    header = {**FORMAT.header(), **describe("classifier", settings, merge(model))}
    write_sealed(path, header, tensors)


def read_classifier(path: Path) -> ClassifierFile:
    """Read a classifier, checking its digest."""
    file = read_sealed_arrays(path)
    header, arrays = file.description, file.arrays
    try:
        FORMAT.check(path, header)
        artifact = described(path, "classifier", file.sha256, header)
        found = ClassifierFile(artifact, arrays["weight"], arrays.get("bias"), arrays["labels"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a classifier of fne ({error!r}); {repair_hint(path)}") from None
    if len(found.labels) and not 0 <= found.labels.min() <= found.labels.max() < len(found.weight):
        raise InputError(
            f"{path}: has images of class {found.labels.max()}, but {len(found.weight)} classes; "
            f"{repair_hint(path)}"
        )
    return found
