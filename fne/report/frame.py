"""What every page shows around its results: the data set, pictures, curves, and how the page was made."""

import base64
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fne.core.errors import InputError
from fne.core.stage import input_digests
from fne.report.facts import head
from fne.report.record import page_record
from fne.report.sources import NO_HISTORY, History
from fne.store.artifact import Artifact, Lineage
from fne.store.catalog import Captioned, Image, image_root, read_captions, read_images
from fne.store.images import UndecodableError, decode_bytes, read_image_file
from fne.store.lineage import recorded_lineage

THUMBNAIL_SIDE = 256  # pixels
THUMBNAIL_QUALITY = 80  # JPEG quality
# DVC sets it for the stages of an experiment.
EXPERIMENT = "DVC_EXP_NAME"


@dataclass(frozen=True)
class Frame:
    """What a page shows around its results."""

    lineage: Lineage
    captioned: Sequence[Captioned]
    root: str  # the value of `catalog.root`
    record: str  # what the page records about itself, see `fne.report.record`
    thumbnails: Mapping[str, str]  # a data URI per image id; images without one are shown by their id
    history: History = NO_HISTORY
    experiment: str | None = None  # DVC's name of it, None for `dvc repro`

    @property
    def head(self) -> dict[str, str]:
        """What the page is about, by title."""
        return head(self.lineage, self.root, self.captioned, self.experiment)


@dataclass(frozen=True)
class PageSource:
    """The catalog that a page is about, and the lineage of what it shows."""

    images: Sequence[Image]
    captioned: Sequence[Captioned]
    lineage: Lineage
    root: str

    @classmethod
    def read(cls, shown: Artifact, images: Path, captions: Path, root: str) -> Self:
        """Read the two files of the catalog; others than those behind what is shown are refused."""
        listed, images_artifact = read_images(images)
        captioned, captions_artifact = read_captions(captions)
        # Without image files there is none that could be of another data set.
        known = [shown, captions_artifact, *[images_artifact] * bool(listed)]
        return cls(listed, captioned, recorded_lineage(*known), root)

    def frame(
        self,
        page: str,
        settings: Mapping[str, Any],
        shown: Iterable[str],
        history: History = NO_HISTORY,
    ) -> Frame:
        """Return the frame of a page.

        Args:
            page: its name in records.
            shown: the ids of the images that it shows.
        """
        record = page_record({**settings, "root": self.root}, self.lineage, input_digests(), page)
        thumbnails = make_thumbnails(shown, self.images, image_root(self.root))
        experiment = os.environ.get(EXPERIMENT)
        return Frame(self.lineage, self.captioned, self.root, record, thumbnails, history, experiment)


def make_thumbnails(ids: Iterable[str], images: Iterable[Image], root: Path) -> dict[str, str]:
    """Return a thumbnail, as a data URI, for each of `ids` that has an image in the catalog."""
    catalog = {image.id: image for image in images}
    return {id_: thumbnail(root / catalog[id_].path, catalog[id_].sha256) for id_ in ids if id_ in catalog}


def thumbnail(path: Path, sha256: str) -> str:
    """Return a JPEG of at most 256 x 256 pixels, as a data URI; a file that has changed since is refused."""
    try:
        data = read_image_file(path)
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InputError(
                f"{path}: the digest of the file is {found[:12]}…, but the catalog has {sha256[:12]}…; "
                "run `dvc repro`"
            )
        picture = decode_bytes(data)
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; run `dvc repro`") from None
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=THUMBNAIL_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
