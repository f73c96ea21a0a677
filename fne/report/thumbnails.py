"""Small copies of the images that the page shows, as data URIs, so that the page is one file."""

import base64
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

from fne.core.errors import InputError
from fne.store.catalog import Image
from fne.store.decode import UndecodableError, decode_bytes, read_bytes

SIDE = 256
QUALITY = 80


def make_thumbnails(ids: Iterable[str], images: Iterable[Image], root: Path) -> dict[str, str]:
    """Return a thumbnail for each of `ids` that the catalog has an image for.

    Raises:
        InputError: if an image is no longer the file that the catalog describes.
    """
    catalog = {image.id: image for image in images}
    return {id_: thumbnail(root / catalog[id_].path, catalog[id_].sha256) for id_ in ids if id_ in catalog}


def thumbnail(path: Path, sha256: str) -> str:
    """Return a JPEG of at most 256 pixels a side, as a data URI."""
    try:
        data = read_bytes(path)
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InputError(
                f"{path}: the catalog has it as {sha256[:12]}…, but the file is now {found[:12]}…; "
                "run `dvc repro`"
            )
        picture = decode_bytes(data)
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; run `dvc repro`") from None
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
