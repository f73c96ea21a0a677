"""Image files of the catalog as pixels, read ahead by worker processes."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from fne.activations.resizing import Resize
from fne.core.errors import InputError
from fne.store.catalog import Image
from fne.store.decode import UndecodableError, decode_bytes

# Images that each worker may have ready: bounded, so that memory does not grow with the data set.
AHEAD = 4


class ImageFiles(Dataset[Tensor | str]):
    """The images of a catalog by their position: pixels, or a fault in words.

    A fault is returned and not raised, because a worker's exception would reach the user
    with the worker's traceback in its message.
    """

    def __init__(self, images: Sequence[Image], root: Path, resize: Resize) -> None:
        self.images = images
        self.root = root
        self._resize = resize

    def __getitem__(self, position: int) -> Tensor | str:
        try:
            return read_pixels(self.images[position], self.root, self._resize)
        except InputError as error:
            return error.message


class _Order(Sampler[int]):
    """The positions in the order in which a generator gives them, as late as possible."""

    def __init__(self, positions: Iterable[int]) -> None:
        self._positions = positions

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)


def read_ahead(files: ImageFiles, positions: Iterable[int], workers: int, pin: bool) -> Iterator[Tensor]:
    """Yield the pixels (channels, height, width) of images in the order of `positions`.

    Raises:
        InputError: at the first image that cannot be read.
    """
    loader = DataLoader(
        files,
        batch_size=None,
        sampler=_Order(positions),
        num_workers=workers,
        prefetch_factor=AHEAD if workers else None,
        pin_memory=pin,
        # The values do not matter, but without a generator the global one would be advanced.
        generator=torch.Generator(),
    )
    try:
        for pixels in loader:
            if isinstance(pixels, str):
                raise InputError(pixels)
            yield pixels
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise InputError(
            "a process that reads images was killed, perhaps for lack of memory; what is finished is kept: "
            "lower runtime.workers and run again"
        ) from None


def read_pixels(image: Image, root: Path, resize: Resize) -> Tensor:
    """Read one image of the catalog, refusing it if it has changed since."""
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
        return resize(decode_bytes(content))
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; run `dvc repro catalog`") from None
