"""A tagger or a captioner on disk: its weights, and in the header everything needed to use it.

Both are one kind of file. The name of the artifact says which of the two it is, and the vocabulary has what
it writes. Importing torch takes longer than a search, so it is imported only to load a model.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.concepts import Concepts
from fne.describing.settings import CAPTIONER, TAGGER
from fne.store.artifact import Artifact, Format, Lineage, describe, described, repair_hint
from fne.store.tensors import HEADER_FAULTS, NETWORK, read_sealed_arrays, write_sealed
from fne.text.caption_vocabulary import UNKNOWN, CaptionWords

if TYPE_CHECKING:
    from torch import Tensor

    from fne.describing.model import DescribingModel

FORMAT = Format("fne-describing", 1)
# The pipeline that makes each.
PIPELINES = {CAPTIONER: "pipelines/captioning/dvc.yaml", TAGGER: "pipelines/tagging/dvc.yaml"}
TUNED_PIPELINES = {
    CAPTIONER: "pipelines/tuned_captioning/dvc.yaml",
    TAGGER: "pipelines/tuned_tagging/dvc.yaml",
}
# What the model before the fine-tuning is called in the lineage of a tuned one, which has its name.
BEFORE = {CAPTIONER: "captioner_before", TAGGER: "tagger_before"}


@dataclass(frozen=True)
class Vocabulary:
    """What the numbers of a model mean: a tagger writes its concepts, a captioner writes words."""

    concepts: Concepts
    words: CaptionWords | None = None
    user_tags: list[str] = field(default_factory=list)  # noisy tags of users, which a tagger may read

    @property
    def kind(self) -> str:
        """The name of such a model in lineages."""
        return TAGGER if self.words is None else CAPTIONER

    @property
    def outputs(self) -> int:
        """The number of outputs of a decoder: END is 0, and the concept n of a tagger is n + 1."""
        return len(self.concepts.names) + 1 if self.words is None else self.words.outputs

    @property
    def never(self) -> list[int]:
        """Outputs that are never written."""
        return [] if self.words is None else [UNKNOWN]

    def log_frequencies(self) -> np.ndarray:
        """Return the log frequency of each output in training (outputs), to start a decoder's biases with."""
        if self.words is not None:
            return self.words.log_frequencies()
        # Every image has one END.
        counts = np.array([self.concepts.images, *self.concepts.counts], dtype=float).clip(min=0.5)
        frequencies: np.ndarray = np.log(counts / counts.sum())
        return frequencies

    def as_json(self) -> dict[str, Any]:
        """Return what a file holds."""
        concepts = asdict(self.concepts)
        if self.words is None:
            return {"concepts": concepts, "user_tags": self.user_tags}
        return {"words": asdict(self.words), "concepts": concepts}


@dataclass(frozen=True)
class DescribingFile:
    """A tagger or captioner as its file has it."""

    artifact: Artifact
    shape: dict[str, Any]  # the values of its `fne.describing.model.DescribingShape`, by their names
    vocabulary: Vocabulary
    weights: dict[str, np.ndarray]  # by their names in the `DescribingModel`; not those of a tuned network

    @property
    def is_tuned(self) -> bool:
        """Whether its image network was trained together with it."""
        return BEFORE.get(self.artifact.name) in self.artifact.lineage

    def load(self) -> "DescribingModel":
        """Return the model."""
        import torch  # torch: slow to import

        from fne.describing.model import DescribingModel, DescribingShape

        try:
            # Drawing weights only to replace them would take longer than reading them.
            with torch.device("meta"):
                model = DescribingModel(DescribingShape(**self.shape))
            state = {name: torch.from_numpy(value) for name, value in self.weights.items()}
            model.load_state_dict(state, assign=True)
        except HEADER_FAULTS as error:
            raise _not_a_describing_model(self.artifact.path, error) from None
        return model.eval()


def write_describing_model(
    path: Path,
    model: "DescribingModel",
    vocabulary: Vocabulary,
    settings: dict[str, Any],
    lineage: Lineage,
    network: "Mapping[str, Tensor] | None" = None,
) -> str:
    """Write a tagger or captioner, what its numbers mean and how it was made; return the file's digest.

    With a `network` that was trained together with it, its lineage has the model before that.
    """
    section = f"train_{vocabulary.kind}" if network is None else f"tune_{vocabulary.kind}"
    header = {
        **FORMAT.header(),
        **describe(vocabulary.kind, settings, lineage, {section: {}}),
        "shape": asdict(model.shape),
        "vocabulary": vocabulary.as_json(),
    }
    named = {f"{NETWORK}{name}": value for name, value in (network or {}).items()}
    return write_sealed(path, header, model.state_dict() | named)


def read_describing_model(path: Path, kind: str | None = None) -> "tuple[DescribingModel, DescribingFile]":
    """Read a tagger or captioner as `read_describing_file` does, and load it into torch."""
    file = read_describing_file(path, kind)
    return file.load(), file


def read_describing_file(path: Path, kind: str | None = None) -> DescribingFile:
    """Read a tagger or captioner, or only one of the two, checking the digest of the whole file."""
    file = read_sealed_arrays(path)
    header = file.description
    try:
        FORMAT.check(path, header)
        name = str(header["name"])
        tuned = BEFORE.get(name) in header["lineage"]
        pipeline = (TUNED_PIPELINES if tuned else PIPELINES).get(name, "")
        artifact = described(path, name, file.sha256, header, pipeline)
        if kind not in (None, name):
            raise InputError(f"{path}: is a {name}, not a {kind}; run `dvc repro {PIPELINES[str(kind)]}`")
        shape = dict(header["shape"])
        vocabulary = _vocabulary(name, header["vocabulary"], shape)
    except HEADER_FAULTS as error:
        raise _not_a_describing_model(path, error) from None
    own = {key: value for key, value in file.arrays.items() if not key.startswith(NETWORK)}
    return DescribingFile(artifact, shape, vocabulary, own)


def _vocabulary(kind: str, held: Mapping[str, Any], shape: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of a header that fits the shape of the model."""
    if kind not in (TAGGER, CAPTIONER):
        raise ValueError(f"it is a {kind}")
    found = Vocabulary(
        Concepts(**held["concepts"]),
        CaptionWords(**held["words"]) if kind == CAPTIONER else None,
        list(held["user_tags"]) if kind == TAGGER else [],
    )
    # A tagger may lack a decoder, and both may lack concepts.
    outputs = (0, found.outputs) if kind == TAGGER else (found.outputs,)
    concepts = (0, len(found.concepts.names))
    fits = shape["outputs"] in outputs and shape["concepts"] in concepts
    if not fits or shape["user_tags"] != len(found.user_tags):
        raise ValueError("its words, concepts or user tags do not fit its shape")
    return found


def _not_a_describing_model(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not a tagger or captioner of fne ({error!r}); {repair_hint(path)}")
