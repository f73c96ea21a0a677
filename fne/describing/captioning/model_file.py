"""The file of a captioner: a describer, with the words that it writes and the concepts that it recognizes."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fne.core.errors import InputError
from fne.describing.concepts import Concepts
from fne.describing.model_file import DescriberFile, read_describer, read_describer_file, write_describer
from fne.store.artifact import Lineage, repair_hint
from fne.text.caption_vocabulary import CaptionWords

if TYPE_CHECKING:
    from fne.describing.model import Describer

NAME = "captioner"  # in lineages


def write_captioner(
    path: Path,
    captioner: "Describer",
    words: CaptionWords,
    concepts: Concepts,
    settings: dict[str, object],
    lineage: Lineage,
) -> str:
    """Write a captioner; return the digest of the file."""
    vocabulary = {"words": asdict(words), "concepts": asdict(concepts)}
    return write_describer(path, NAME, captioner, vocabulary, settings, lineage)


def read_captioner(path: Path) -> "tuple[Describer, DescriberFile]":
    """Read a captioner for torch.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a captioner of fne.
    """
    captioner, file = read_describer(path)
    vocabulary(file)
    return captioner, file


def read_captioner_file(path: Path) -> DescriberFile:
    """Read the file of a captioner, without torch.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a captioner of fne.
    """
    file = read_describer_file(path)
    vocabulary(file)
    return file


def vocabulary(file: DescriberFile) -> tuple[CaptionWords, Concepts]:
    """Return the words that a captioner writes, and the concepts that it recognizes.

    Raises:
        InputError: if the file is no captioner, or if they do not fit its shape.
    """
    path = file.artifact.path
    if file.artifact.name != NAME:
        raise InputError(f"{path}: expected a captioner, found a {file.artifact.name}")
    try:
        words = CaptionWords(**file.vocabulary["words"])
        concepts = Concepts(**file.vocabulary["concepts"])
        if file.shape["outputs"] != words.outputs or file.shape["concepts"] not in (0, len(concepts.names)):
            raise ValueError("its words or concepts do not fit its shape")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a captioner of fne ({error!r}); {repair_hint(path)}") from None
    return words, concepts
