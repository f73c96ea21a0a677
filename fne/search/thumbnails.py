"""Thumbnails of image files, for answers in a notebook."""

import base64
import io
from pathlib import Path

from fne.store.images import UndecodableError, decode

SIDE = 128  # pixels
QUALITY = 85


def thumbnail(file: Path) -> str | None:
    """Return an image as a small JPEG in a data URI, or None if the file cannot be read."""
    try:
        picture = decode(file)
    except UndecodableError:
        return None
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
