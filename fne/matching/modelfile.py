"""The model on disk, with everything needed to use it in its header."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fne.core.errors import InputError
from fne.matching.model import Matcher, Shape
from fne.matching.sealed import read_sealed, write_sealed
from fne.store.files import file_digest
from fne.store.formats import Format, how_to_mend
from fne.store.lineage import Artifact, Lineage, describe

FORMAT = Format("fne-model", 1)


def write_model(path: Path, matcher: Matcher, settings: dict[str, Any], lineage: Lineage) -> None:
    """Write a model's weights, its shape and how it was made."""
    header = {
        **FORMAT.header(),
        **describe("model", settings, lineage),
        "shape": asdict(matcher.shape),
    }
    write_sealed(path, header, matcher.state_dict())


def read_model(path: Path) -> tuple[Matcher, Artifact]:
    """Read a model, checking its digest.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a model of ours.
    """
    header, state = read_sealed(path)
    try:
        FORMAT.check(path, header)
        # Drawing weights only to replace them would take longer than reading them.
        with torch.device("meta"):
            matcher = Matcher(Shape(**header["shape"]))
        matcher.load_state_dict(state, assign=True)
        artifact = Artifact(path, "model", file_digest(path), header["settings"], header["lineage"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{path}: not a model of ours ({error!r}); {how_to_mend(path)}") from None
    return matcher, artifact
