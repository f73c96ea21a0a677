"""Rows of images from a tuned network, for vectors in the joint space.

Images are prepared exactly as for the model before the fine-tuning. Only the weights are others.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.extraction.computer import LocalComputer
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import Scratch
from fne.extraction.read_images import ImageFiles
from fne.extraction.recorded_extractor import build_recorded, recorded_input
from fne.extraction.run import Report, extract
from fne.extraction.weights import Weights
from fne.features.standardize import Statistics
from fne.finetuning.tuned_network import SCALING, RowsOf, layers_read, rows_of
from fne.store.artifact import Artifact
from fne.store.catalog import Image
from fne.store.layout import count_views, mean_of_views
from fne.store.tensors import NETWORK, read_sealed_arrays
from fne.training.task import ParameterGroup

KEPT = "for the scratch folder"


def tuned_extractor(origin: Artifact, runtime: Runtime) -> tuple[Extractor, RowsOf]:
    """Return the extractor with the network in the file of a tuned model, and what makes its values rows."""
    file = read_sealed_arrays(origin.path, NETWORK)
    if file.sha256 != origin.digest:
        raise InputError(f"{origin.path} has been replaced meanwhile; run the command again")
    if not file.arrays:
        remedy = f"dvc repro {origin.pipeline}".rstrip()
        raise InputError(f"{origin.path}: holds no network that was tuned with the model; run `{remedy}`")
    state = {name.removeprefix(NETWORK): torch.from_numpy(value) for name, value in file.arrays.items()}
    scaling = {key: state.pop(name).numpy() for key, name in SCALING.items() if name in state}
    weights = Weights(Artifact(origin.path, "weights", origin.digest), state, recorded_input(origin))
    embedding = origin.lineage["embeddings"]["settings"]
    _, kept = layers_read(weights, origin.lineage["activations"]["settings"], embedding)
    extractor = build_recorded(origin, weights, runtime, kept)
    ordinary = Statistics(**scaling, ids=[]) if scaling else None
    sizes = [each.features for each in extractor.layers]
    return extractor, rows_of(embedding, sizes[: len(sizes) // count_views(extractor.layers)], ordinary)


class TunedRows:
    """The rows of images as a tuned network computes them, the mean of their views: constants from here on.

    All images pass through the network when this is made. Finished rows are kept in the scratch folder, so
    that an interruption costs only those that were being computed.
    """

    network = None

    def __init__(self, origin: Artifact, images: Sequence[Image], root: Path, runtime: Runtime) -> None:
        self._origin = origin
        extractor, self._rows_of = tuned_extractor(origin, runtime)
        scratch = Scratch(runtime.scratch_folder() / "activations", extractor.kind, extractor.features)
        computer = LocalComputer(extractor.device, runtime.batch, runtime.workers)
        report = Report(partial(say, err=True), "tuned network", KEPT)
        extract(ImageFiles(images, root, extractor.resize), extractor, scratch, computer, report)
        self._files = {image.id: image.sha256 for image in images}
        self._finished = scratch.rows(self._files.values())
        self._views = count_views(extractor.layers)

    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """Return nothing: the network is not trained any more."""
        return []

    def check_ids(self, ids: Sequence[str]) -> None:
        """Refuse images without a file."""
        missing = [each for each in ids if each not in self._files]
        if missing:
            raise InputError(f"the catalog has no image file of {missing[0]!r}; run `dvc repro`")

    def digest(self, ids: Sequence[str]) -> str:
        """Return the digest of the network and of the image files."""
        return text_digest(json.dumps([self._origin.digest, [[each, self._files[each]] for each in ids]]))

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        """Return rows (images, features); it does not return single views."""
        rows = np.stack([self._finished[self._files[each]] for each in ids])
        return self._rows_of(torch.from_numpy(mean_of_views(rows, self._views)))

    def blocks(self, ids: Sequence[str], size: int) -> Iterator[Tensor]:
        """Yield the rows of `size` images at a time."""
        for start in range(0, len(ids), size):
            yield self.read(ids[start : start + size])
