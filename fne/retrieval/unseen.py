"""Embeddings of images that the catalog does not have, made exactly as the catalog's were.

Everything that decides an embedding is recorded in the lineage of what was made from
it: the network's settings and weights, the statistics, the thresholds. An image is
embedded with these or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from fne.activations.extract import check_finite, complete
from fne.activations.extractor import Extractor, build_extractor
from fne.activations.scratch import Scratch
from fne.activations.settings import Choices
from fne.activations.weights import load_weights
from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.runtime import Runtime
from fne.features.embeddings import EMBEDDINGS, Embedding
from fne.features.embeddings import Choices as EmbeddingChoices
from fne.features.statistics import read_statistics
from fne.retrieval.query import New
from fne.store.catalog import Image
from fne.store.decode import decode_bytes, read_bytes
from fne.store.layout import Manifest
from fne.store.lineage import Artifact, merge
from fne.store.rows import Rows

BLOCK = 256


@dataclass(frozen=True)
class Embedder:
    """A way from image files to embeddings; finished activations are kept in the scratch folder."""

    extractor: Extractor
    embedding: Embedding
    scratch: Scratch
    runtime: Runtime

    def embed(self, picture: New) -> np.ndarray:
        """Return the embedding of one image file."""
        finished = self.scratch.rows([picture.sha256]).get(picture.sha256)
        row = self._compute(picture) if finished is None else finished
        embedded: np.ndarray = self.embedding.transform(row[None])[0]
        return embedded

    def prepare(self, images: Sequence[Image], root: Path) -> None:
        """Compute the activations of many images; what is finished stays so, however this ends."""
        runtime = self.runtime
        complete(self.scratch, images, root, self.extractor, runtime.batch, runtime.workers, _say)

    def rows(self, digests: Sequence[str]) -> np.ndarray:
        """Return the embeddings of prepared images, by the digests of their files."""
        finished = self.scratch.rows(digests)
        blocks = [np.empty((0, sum(layer.features for layer in self.embedding.layers)), dtype=np.float32)]
        for start in range(0, len(digests), BLOCK):
            activations = np.stack([finished[digest] for digest in digests[start : start + BLOCK]])
            blocks.append(self.embedding.transform(activations))
        return np.concatenate(blocks)

    def _compute(self, picture: New) -> np.ndarray:
        pixels = self.extractor.resize(decode_bytes(read_bytes(picture.file)))
        row: np.ndarray = self.extractor.compute([pixels])[0]
        check_finite(row, str(picture.file), self.extractor.layers)
        for journal, _, unfinished in self.scratch.claims([picture.sha256]):
            try:
                for digest in unfinished:
                    journal.append(digest, row)
            finally:
                journal.unlock()
        return row


def open_embedder(
    origin: Artifact, weights: Path, statistics: Path, runtime: Runtime, scratch: Path
) -> Embedder:
    """Put together what made the embeddings that `origin` holds or was made from.

    Args:
        origin: the embeddings, or a model that was trained on them.
        weights: the file of the network's weights.
        statistics: the file of the statistics.
        runtime: how to compute.
        scratch: the scratch folder.

    Raises:
        InputError: if weights or statistics are not those that `origin` was made from, with both digests.
    """
    extractor = open_extractor(origin, weights, runtime)
    ordinary, fitted = read_statistics(statistics)
    recorded = merge(origin, fitted)["embeddings"]["settings"]
    # A store without rows: its layers are all that an embedding needs to know.
    manifest = Manifest(
        name="activations",
        settings={},
        lineage={},
        dtype="float32",
        layers=[(layer.name, layer.features) for layer in extractor.layers],
        shards=[],
    )
    activations = Rows(Artifact(origin.path, "activations", ""), manifest)
    embedding = EMBEDDINGS[recorded["kind"]](activations, ordinary, EmbeddingChoices.recorded(recorded))
    finished = Scratch(scratch / "activations", extractor.kind, extractor.features)
    return Embedder(extractor, embedding, finished, runtime)


def recorded_extraction(origin: Artifact) -> dict[str, Any]:
    """Return the settings of the extraction that an artifact was made from.

    Raises:
        InputError: if its activations were not extracted here, so that no further image can be.
    """
    settings: dict[str, Any] = origin.lineage.get("activations", {}).get("settings", {})
    if "weights" not in origin.lineage or not Choices.model_fields.keys() <= settings.keys():
        raise InputError(
            f"{origin.path} was made from imported features, and nothing is known of the network that "
            "computed them: new images cannot be searched with, only images of the catalog"
        )
    return settings


def open_extractor(origin: Artifact, weights: Path, runtime: Runtime) -> Extractor:
    """Put together the extractor that made what `origin` was made from.

    Raises:
        InputError: if its weights are not those at hand, or if this version computes other values.
    """
    settings = recorded_extraction(origin)
    choices = Choices(**{key: settings[key] for key in Choices.model_fields})
    loaded = load_weights(weights, choices.backbone)
    merge(origin, loaded.artifact)
    prepare_device(runtime)
    device, algorithm = torch.device(settings["device"]), settings["algorithm"]
    if device.type == "cuda" and not torch.cuda.is_available():
        _say("the catalog's images were computed on a GPU; without one, the last digits may differ")
        device, algorithm = torch.device("cpu"), "auto"
    extractor = build_extractor(choices, loaded, algorithm, device)
    for key in ("decoder", "extractor"):
        if extractor.kind[key] != settings[key]:
            raise InputError(
                f"{origin.path} was made with version {settings[key]} of the {key}, this is version "
                f"{extractor.kind[key]}; run `dvc repro`"
            )
    return extractor


def _say(message: str) -> None:
    click.echo(message, err=True)
