"""The activations of every image of a catalog, shard by shard."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from fne.activations.crops import prepare
from fne.activations.network import Network, activations
from fne.core.errors import InputError
from fne.store.catalog import Image
from fne.store.decode import UndecodableError, decode_bytes
from fne.store.layout import Layer, plan_shards

# Raised whenever the same image would give another result.
EXTRACTOR_VERSION = 1


def extract_shards(
    images: Sequence[Image],
    root: Path,
    network: Network,
    crops: Callable[[Tensor], Tensor],
    shards: int,
    device: torch.device,
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and activations of each shard.

    Raises:
        InputError: if an image is not the one in the catalog any more, or if an activation
            is not finite.
    """
    by_id = {image.id: image for image in images}
    with tqdm(total=len(images), desc="extract", unit="image", disable=None) as progress:
        for number, ids in plan_shards(list(by_id), shards).items():
            rows = np.empty((len(ids), sum(layer.features for layer in network.layers)), dtype=np.float32)
            for row, image_id in zip(rows, ids, strict=True):
                pixels = read_pixels(by_id[image_id], root).to(device)
                row[:] = activations(network, crops(pixels)).cpu().numpy()
                check_finite(row, image_id, network.layers)
                progress.update()
            yield number, ids, rows


def read_pixels(image: Image, root: Path) -> Tensor:
    """Read one image of the catalog, (channels, height, width), refusing it if it has changed."""
    path = root / image.path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); run `dvc repro catalog`") from None
    found = hashlib.sha256(content).hexdigest()
    if found != image.sha256:
        raise InputError(
            f"{path}: has changed since the catalog was made: it was {image.sha256[:12]}…, "
            f"now it is {found[:12]}…; run `dvc repro catalog`"
        )
    try:
        return prepare(decode_bytes(content))
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; run `dvc repro catalog`") from None


def check_finite(row: np.ndarray, image_id: str, layers: Sequence[Layer]) -> None:
    """Refuse NaN and infinity, naming image and layer."""
    if np.isfinite(row).all():
        return
    column = int(np.flatnonzero(~np.isfinite(row))[0])
    ends = np.cumsum([layer.features for layer in layers])
    layer = layers[int(np.searchsorted(ends, column, side="right"))].name
    raise InputError(
        f"image {image_id!r}: layer {layer} gives {row[column]}; check the weights file and the image"
    )
