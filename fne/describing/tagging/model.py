"""A tagger: a describer with the names of its concepts and hints, its file, and its answers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.describing.beam import search
from fne.describing.concepts import Concepts
from fne.describing.model import Describer
from fne.describing.model_file import read_describer, write_describer
from fne.describing.tagging.data import END, TaggingInputs
from fne.store.artifact import Artifact, Lineage, repair_hint

NAME = "tagger"  # in lineages


class Answers(NamedTuple):
    """The answers of a tagger; None where it lacks a part."""

    probabilities: np.ndarray | None  # of the concepts (images, concepts)
    written: list[list[int]] | None  # concepts in the order in which they were written


@dataclass(frozen=True)
class Tagger:
    """A tagger from its file."""

    describer: Describer
    concepts: Concepts
    hints: list[str]  # that it reads
    artifact: Artifact


@torch.inference_mode()
def answer(describer: Describer, rows: Tensor, hints: Tensor | None = None) -> Answers:
    """Tag images: concept probabilities, and tags one after the other until the tagger ends.

    Args:
        describer: the tagger.
        rows: image rows (images, features).
        hints: 0/1 for each hint that it reads (images, hints).
    """
    device = describer.device
    seen = describer.see(rows.to(device), None if hints is None else hints.to(device))
    probabilities = None if seen.logits is None else seen.probabilities.cpu().numpy()
    if describer.decoder is None:
        return Answers(probabilities, None)
    found = search(
        describer.decoder.prepared(),
        describer.condition(seen),
        beam=1,
        max_length=describer.shape.outputs - 1,
        end=END,
        repeats=False,
    )
    return Answers(probabilities, [[word - 1 for word in each[0].words] for each in found])


def written_mask(written: Sequence[Sequence[int]], concepts: int) -> np.ndarray:
    """Return which concepts were written for each image (images, concepts)."""
    mask = np.zeros((len(written), concepts), dtype=bool)
    for row, numbers in zip(mask, written, strict=True):
        row[list(numbers)] = True
    return mask


def write_tagger(
    path: Path, describer: Describer, inputs: TaggingInputs, settings: dict[str, Any], lineage: Lineage
) -> str:
    """Write a tagger; return the digest of the file."""
    vocabulary = {"concepts": asdict(inputs.concepts), "hints": inputs.hints}
    return write_describer(path, NAME, describer, vocabulary, settings, lineage)


def read_tagger(path: Path) -> Tagger:
    """Read a tagger.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a tagger of fne.
    """
    describer, file = read_describer(path)
    try:
        if file.artifact.name != NAME:
            raise ValueError(f"it is a {file.artifact.name}")
        concepts = Concepts(**file.vocabulary["concepts"])
        hints = list(file.vocabulary["hints"])
        shape, count = describer.shape, len(concepts.names)
        fits = shape.concepts in (0, count) and shape.outputs in (0, count + 1) and shape.hints == len(hints)
        if not fits:
            raise ValueError("its concepts or hints do not fit its shape")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a tagger of fne ({error}); {repair_hint(path)}") from None
    return Tagger(describer, concepts, hints, file.artifact)
