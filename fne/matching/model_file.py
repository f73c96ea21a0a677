"""The model on disk, with everything needed to use it in its header.

A tuned model has the weights of its image network besides, as far as the layer that its image head reads.
The stage `finetune` writes it.

Importing torch takes longer than a whole search, so it is imported only for a `Matcher`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core.errors import InputError
from fne.store.artifact import (
    Artifact,
    Format,
    Lineage,
    Sections,
    describe,
    described,
    newest,
    repair_hint,
    require_same,
)
from fne.store.tensors import HEADER_FAULTS, NETWORK, read_sealed_arrays, write_sealed

if TYPE_CHECKING:
    from torch import Tensor

    from fne.matching.model import Matcher

# What makes vectors, the last stage first, as lineages name it.
MODELS = ("tuned", "model")
FORMAT = Format("fne-model", 2)
TUNED = Format("fne-tuned", 2)
MODEL_FILE = "model.safetensors"
# The pipeline that makes a tuned model, and vectors with it.
FINETUNING = "pipelines/finetuning/dvc.yaml"


@dataclass(frozen=True)
class ModelFile:
    """A model as its file has it."""

    artifact: Artifact
    shape: dict[str, Any]  # the values of its `fne.matching.model.Shape`, by their names
    weights: dict[str, np.ndarray]  # by their names in the `Matcher`; of a network, by those in torchvision


def write_model(
    path: Path,
    matcher: "Matcher",
    settings: dict[str, Any],
    lineage: Lineage,
    given: dict[str, Any] | None = None,
) -> str:
    """Write a model's weights, its shape and how it was made; return the digest of the file.

    Args:
        given: the values of the section `train` that `settings` have in another form.
    """
    header = _header(asdict(matcher.shape), settings, lineage, {"train": given or {}})
    return write_sealed(path, header, matcher.state_dict())


def _header(
    shape: dict[str, Any], settings: dict[str, Any], lineage: Lineage, sections: Sections | None = None
) -> dict[str, Any]:
    return {**FORMAT.header(), **describe(MODELS[-1], settings, lineage, sections), "shape": shape}


def write_tuned(
    path: Path, matcher: "Matcher", network: "dict[str, Tensor]", settings: dict[str, Any], lineage: Lineage
) -> str:
    """Write a model that was trained together with its image network; return the digest of the file.

    Weights of the network have their names in torchvision. The lineage includes the model before it.
    """
    header = {
        **TUNED.header(),
        **describe(MODELS[0], settings, lineage, {"finetune": {}}),
        "shape": asdict(matcher.shape),
    }
    named = {f"{NETWORK}{name}": value for name, value in network.items()}
    return write_sealed(path, header, matcher.state_dict() | named)


def read_model(path: Path) -> "tuple[Matcher, Artifact]":
    """Read a model, tuned or not, checking its digest."""
    import torch  # torch: slow to import

    from fne.matching.model import Matcher, Shape

    file = read_model_file(path)
    try:
        # Drawing weights only to replace them would take longer than reading them.
        with torch.device("meta"):
            matcher = Matcher(Shape(**file.shape))
        state = {
            name: torch.from_numpy(value)
            for name, value in file.weights.items()
            if not name.startswith(NETWORK)
        }
        matcher.load_state_dict(state, assign=True)
    except HEADER_FAULTS as error:
        raise not_a_model(path, error) from None
    return matcher, file.artifact


def read_model_file(path: Path, prefix: str = "") -> ModelFile:
    """Read a model without torch, checking the digest; only weights that begin with `prefix` are returned."""
    file = read_sealed_arrays(path, prefix)
    header = file.description
    try:
        tuned = header["format"] == TUNED.name
        form, name, pipeline = (TUNED, MODELS[0], FINETUNING) if tuned else (FORMAT, MODELS[-1], "")
        form.check(path, header)
        artifact = described(path, name, file.sha256, header, pipeline)
        return ModelFile(artifact, dict(header["shape"]), file.arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise not_a_model(path, error) from None


def model_of(artifact: Artifact) -> tuple[str, str]:
    """Return the name and the digest of the model behind an artifact: the tuned one, if it was tuned."""
    return newest(MODELS, artifact)


def require_same_model(*artifacts: Artifact) -> None:
    """Refuse artifacts of which some were made with a tuned network and others with the model before it."""
    require_same(MODELS, *artifacts)


def not_a_model(path: Path, error: Exception) -> InputError:
    """Return the error for an intact file that does not hold a model."""
    return InputError(f"{path}: not a model of fne ({error!r}); {repair_hint(path)}")
