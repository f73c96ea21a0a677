"""A describer on disk, with everything needed to use it in its header.

The file holds a tagger or a captioner. Importing torch takes longer than describing an image of the
catalog, so it is imported only for a `Describer`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core.errors import InputError
from fne.store.artifact import Artifact, Format, Lineage, describe, described, repair_hint
from fne.store.tensors import HEADER_FAULTS, read_sealed_arrays, write_sealed

if TYPE_CHECKING:
    from fne.describing.model import Describer

FORMAT = Format("fne-describer", 1)
# The pipeline that makes a describer, by its name in lineages.
PIPELINES = {"captioner": "pipelines/captioning/dvc.yaml", "tagger": "pipelines/tagging/dvc.yaml"}


@dataclass(frozen=True)
class DescriberFile:
    """A describer as its file has it.

    Attributes:
        artifact: where it comes from; its name says what it is, such as `tagger`.
        shape: the values of its `fne.describing.model.DescriberShape`, by their names.
        vocabulary: the names of its concepts, tags or words, as its task needs them.
        weights: by their names in the `Describer`.
    """

    artifact: Artifact
    shape: dict[str, Any]
    vocabulary: dict[str, Any]
    weights: dict[str, np.ndarray]


def write_describer(
    path: Path,
    name: str,
    describer: "Describer",
    vocabulary: dict[str, Any],
    settings: dict[str, Any],
    lineage: Lineage,
) -> str:
    """Write a describer, what its numbers mean and how it was made; return the digest of the file.

    Args:
        path: the file.
        name: what it is in a lineage, such as `tagger`.
        describer: the model.
        vocabulary: the names of its concepts, tags or words, compatible with JSON.
        settings: the settings that it was made with.
        lineage: what it was made from.
    """
    header = {
        **FORMAT.header(),
        **describe(name, settings, lineage, {f"train_{name}": {}}),
        "shape": asdict(describer.shape),
        "vocabulary": vocabulary,
    }
    return write_sealed(path, header, describer.state_dict())


def read_describer(path: Path) -> "tuple[Describer, DescriberFile]":
    """Read a describer, checking its digest.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a describer of fne.
    """
    import torch  # torch: slow to import

    from fne.describing.model import Describer, DescriberShape

    file = read_describer_file(path)
    try:
        # Drawing weights only to replace them would take longer than reading them.
        with torch.device("meta"):
            describer = Describer(DescriberShape(**file.shape))
        state = {name: torch.from_numpy(value) for name, value in file.weights.items()}
        describer.load_state_dict(state, assign=True)
    except HEADER_FAULTS as error:
        raise _not_a_describer(path, error) from None
    describer.eval()
    return describer, file


def read_describer_file(path: Path) -> DescriberFile:
    """Read the file of a describer, without torch, checking the digest of the whole file.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a describer of fne.
    """
    file = read_sealed_arrays(path)
    header = file.description
    try:
        FORMAT.check(path, header)
        name = str(header["name"])
        artifact = described(path, name, file.sha256, header, PIPELINES.get(name, ""))
        return DescriberFile(artifact, dict(header["shape"]), dict(header["vocabulary"]), file.arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_a_describer(path, error) from None


def _not_a_describer(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not a tagger or captioner of fne ({error!r}); {repair_hint(path)}")
