"""Rows of images from a tuned network, for vectors in the joint space.

Images are prepared exactly as the extraction prepared them for the model before the fine-tuning: the same
resizing, the same crops. Only the weights are others.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fne.core.params import Runtime
from fne.core.terminal import say
from fne.extraction.computer import LocalComputer
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import Scratch
from fne.extraction.read_images import ImageFiles
from fne.extraction.recorded_extractor import build_recorded, recorded_input
from fne.extraction.run import Report, extract
from fne.extraction.weights import Weights
from fne.matching.model_file import NETWORK, read_model_file
from fne.store.artifact import Artifact
from fne.store.catalog import Image
from fne.store.layout import count_views, mean_of_views

KEPT = "for the scratch folder"


def tuned_extractor(tuned: Path, runtime: Runtime) -> tuple[Extractor, Artifact]:
    """Return the extractor with the weights of a tuned network, and where these come from.

    Raises:
        InputError: if the file is damaged, or if this version of the extractor computes other values.
    """
    file = read_model_file(tuned, NETWORK)
    origin = file.artifact
    state = {name.removeprefix(NETWORK): torch.from_numpy(value) for name, value in file.weights.items()}
    weights = Weights(Artifact(tuned, "weights", origin.digest), state, recorded_input(origin))
    layer = origin.lineage["embeddings"]["settings"]["layer"]
    return build_recorded(origin, weights, runtime, [layer]), origin


def open_tuned_rows(
    tuned: Path, images: Sequence[Image], root: Path, runtime: Runtime
) -> Callable[[Sequence[str]], Tensor]:
    """Pass all images through a tuned network; return a function from ids to rows (images, features).

    Finished rows are kept in the scratch folder, so that an interruption costs only those that were being
    computed.

    Raises:
        InputError: if an image is not the one in the catalog any more.
    """
    extractor, origin = tuned_extractor(tuned, runtime)
    scratch = Scratch(runtime.scratch_folder() / "activations", extractor.kind, extractor.features)
    computer = LocalComputer(extractor.device, runtime.batch, runtime.workers)
    report = Report(partial(say, err=True), "tuned network", KEPT)
    extract(ImageFiles(images, root, extractor.resize), extractor, scratch, computer, report)
    digests = {image.id: image.sha256 for image in images}
    finished = scratch.rows(digests.values())
    views = count_views(extractor.layers)
    unit = origin.lineage["embeddings"]["settings"].get("rows") == "unit"

    def rows(ids: Sequence[str]) -> Tensor:
        found = torch.from_numpy(mean_of_views(np.stack([finished[digests[each]] for each in ids]), views))
        return functional.normalize(found, dim=1) if unit else found

    return rows
