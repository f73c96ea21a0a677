"""The catalog of a project: its images with their captions, splits and tags."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fne.api.project import open_project
from fne.core.errors import InputError
from fne.core.params import not_one_of
from fne.search.project import Catalog as Contents
from fne.store.catalog import SPLITS, split_ids

if TYPE_CHECKING:
    from PIL.Image import Image


class Catalog:
    """The images of a data set, by their ids.

    Attributes:
        root: the folder that the paths of the images start from.
        captions: the captions of each image; none for an image of the split `gallery`.
        tags: the tags of each image.
        hints: the noisy tags of each image, if the data set has any.
        split: the split of each image: `train`, `val`, `test` or `gallery`.

    Example:
        >>> catalog = fne.load_catalog(project)
        >>> catalog
        <Catalog of 24 images: 8 train, 4 val, 8 test, 4 gallery>
        >>> catalog.captions["red-circle.png"]
        ('A red circle.', 'Something red')
        >>> catalog.ids("val")[:2]
        ['blue-square.png', 'green-square.png']
    """

    def __init__(self, contents: Contents) -> None:
        records = contents.captioned
        self._contents = contents
        self.root = contents.root
        self.captions = {record.id: record.captions for record in records.values()}
        self.tags = {record.id: record.tags for record in records.values()}
        self.hints = {record.id: record.hints for record in records.values()}
        self.split = {record.id: record.split for record in records.values()}

    def __len__(self) -> int:
        return len(self.split)

    def __iter__(self) -> Iterator[str]:
        return iter(self.split)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self.split

    def __repr__(self) -> str:
        counts = [(len(self.ids(split)), split) for split in SPLITS]
        return f"<Catalog of {len(self)} images: {', '.join(f'{n} {split}' for n, split in counts if n)}>"

    def ids(self, split: str | None = None) -> list[str]:
        """Return the ids of all images, or of those in a split, in the order of the catalog.

        Raises:
            InputError: if there is no such split.
        """
        if split is None:
            return list(self.split)
        if split not in SPLITS:
            raise InputError(f"split: {not_one_of(split, SPLITS)}")
        return split_ids(self._contents.captioned.values(), split)

    def file(self, image_id: str) -> Path:
        """Return the path of an image.

        Raises:
            InputError: if the catalog has no such image, or only its features.
        """
        if image_id not in self.split:
            raise InputError(f"{image_id!r} is not an image of the catalog; ids() lists them")
        file = self._contents.file(image_id)
        if file is None:
            raise InputError(f"{image_id!r} has no file: the catalog was made with catalog.images=none")
        return file

    def open(self, image_id: str) -> "Image":
        """Return an image as the pipeline decodes it: RGB, upright, transparency on white.

        Raises:
            InputError: if there is no such image, or if its file cannot be read.
        """
        from fne.store.images import UndecodableError, decode  # imports Pillow

        file = self.file(image_id)
        try:
            return decode(file)
        except UndecodableError as error:
            raise InputError(f"{file}: {error}") from None

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per image: id, split, file, width, height, captions, tags and hints.

        Example:
            >>> first = fne.load_catalog(project).records()[0]
            >>> first["id"], first["split"], first["width"], first["height"]
            ('blue-circle.png', 'train', 72, 64)
        """
        rows = []
        for image_id in self.split:
            image = self._contents.images.get(image_id)
            file = self._contents.file(image_id)
            rows.append(
                {
                    "id": image_id,
                    "split": self.split[image_id],
                    "file": str(file) if file else None,
                    "width": image.width if image else None,
                    "height": image.height if image else None,
                    "captions": list(self.captions[image_id]),
                    "tags": list(self.tags[image_id]),
                    "hints": list(self.hints[image_id]),
                }
            )
        return rows

    def dataframe(self) -> Any:
        """Return `records` as a pandas `DataFrame` with the ids as its index.

        Raises:
            InputError: if pandas is not installed; fne does not depend on it.
        """
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError:
            raise InputError("pandas is not installed; run `pip install pandas`, or use records()") from None
        return pandas.DataFrame(self.records()).set_index("id")


def load_catalog(root: str | Path = ".") -> Catalog:
    """Load the catalog of a project.

    Args:
        root: the folder of the project.

    Raises:
        InputError: if the folder has no `params.yaml`, or if the catalog is missing or damaged.
    """
    return Catalog(open_project(root).catalog)
