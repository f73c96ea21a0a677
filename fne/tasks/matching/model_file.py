"""The model on disk, with everything needed to use it in its header.

Importing torch takes longer than a whole search, so it is imported only for a `Matcher`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core.errors import InputError
from fne.store.artifact import Artifact, Format, Lineage, describe, repair_hint
from fne.store.tensors import HEADER_FAULTS, read_sealed_arrays, write_sealed

if TYPE_CHECKING:
    from fne.tasks.matching.model import Matcher

FORMAT = Format("fne-model", 2)
# What a model without weights says in its settings that it stands for: imported vectors of both sides.
IMPORTED = "imported"


@dataclass(frozen=True)
class ModelFile:
    """A model as its file has it.

    Attributes:
        artifact: where it comes from.
        shape: the values of its `fne.tasks.matching.model.Shape`, by their names.
        weights: by their names in the `Matcher`.
    """

    artifact: Artifact
    shape: dict[str, Any]
    weights: dict[str, np.ndarray]


def write_model(path: Path, matcher: "Matcher", settings: dict[str, Any], lineage: Lineage) -> str:
    """Write a model's weights, its shape and how it was made; return the digest of the file."""
    header = {
        **FORMAT.header(),
        **describe("model", settings, lineage),
        "shape": asdict(matcher.shape),
    }
    return write_sealed(path, header, matcher.state_dict())


def read_model(path: Path) -> "tuple[Matcher, Artifact]":
    """Read a model, checking its digest.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a model of fne.
    """
    import torch

    from fne.tasks.matching.model import Matcher, Shape

    file = read_model_file(path)
    if is_imported(file.artifact):
        raise InputError(
            f"{path}: stands for imported vectors and has no weights; nothing can be encoded with it"
        )
    try:
        # Drawing weights only to replace them would take longer than reading them.
        with torch.device("meta"):
            matcher = Matcher(Shape(**file.shape))
        state = {name: torch.from_numpy(value) for name, value in file.weights.items()}
        matcher.load_state_dict(state, assign=True)
    except HEADER_FAULTS as error:
        raise not_a_model(path, error) from None
    return matcher, file.artifact


def read_model_file(path: Path, prefix: str = "") -> ModelFile:
    """Read the file of a model, without torch, checking the digest of the whole file.

    Args:
        path: the file.
        prefix: how the names of the weights begin that are wanted.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a model of fne.
    """
    file = read_sealed_arrays(path, prefix)
    header = file.description
    try:
        FORMAT.check(path, header)
        artifact = Artifact(path, "model", file.sha256, header["settings"], header["lineage"])
        return ModelFile(artifact, dict(header["shape"]), file.arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise not_a_model(path, error) from None


def is_imported(model: Artifact) -> bool:
    """Return whether a model only stands for imported vectors."""
    return bool(model.settings.get("source") == IMPORTED)


def not_a_model(path: Path, error: Exception) -> InputError:
    """Return the error for an intact file that does not hold a model."""
    return InputError(f"{path}: not a model of fne ({error!r}); {repair_hint(path)}")
