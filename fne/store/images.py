"""Decoding of image files to RGB, with one fixed set of rules for every stage that reads pixels.

- The content decides the format, never the name; it must be one of `FORMATS`.
- Palette, gray, 1-bit, CMYK and YCbCr become RGB; color profiles are ignored.
- Transparent pixels are composited on white.
- 16-bit gray is rescaled to 8 bits; samples without a known range (32-bit, float) are refused.
- The EXIF orientation is applied.
- Only the first frame of an animation is read.
- The size is checked in the header, before anything is decoded: `MIN_SIDE`, `MAX_ASPECT`,
  `MAX_PIXELS`, and `MAX_MEMORY` for what decoding would take.

`DECODER_VERSION` is raised whenever a change of these rules changes the pixels of some file.
"""

import io
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fne.store.tar_files import TarError, list_members, read_member, split_path

DECODER_VERSION = 1

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
MIN_SIDE = 8
MAX_ASPECT = 50
MAX_PIXELS = 89_478_485  # 268 MB of RGB, the size at which Pillow begins to warn
MAX_BYTES = 1 << 29
MAX_MEMORY = 1_000_000_000  # bytes
# Bytes of memory per pixel, measured: all copies that decoding and converting make at the same time.
OPAQUE_PIXEL, OTHER_PIXEL, WEBP_PIXEL = 12, 20, 28

COLOR = "not RGB (palette, gray, 1-bit or CMYK), converted to RGB"
ALPHA = "transparent, composited on white"
DEEP = "of 16 bits, rescaled to 8"
ROTATED = "turned by their EXIF orientation"
ANIMATED = "animated, first frame taken"

_PNG_DEPTH = 24  # the offset of the bits per sample in the header of a PNG
_ORIENTATION = 0x0112  # the EXIF tag
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # TIFF tags
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UndecodableError(ValueError):
    """A refused image file; the message is the reason, in one line."""


@dataclass(frozen=True)
class Decoded:
    """An RGB image, the format of its file, and the rules that were applied."""

    image: Image.Image
    format: str
    notes: tuple[str, ...]


def decode(path: Path) -> Image.Image:
    """Return the RGB image in a file; `UndecodableError` if it is unreadable or the rules refuse it."""
    return decode_bytes(read_image_file(path))


def decode_bytes(data: bytes) -> Image.Image:
    """Return the RGB image in the bytes of a file; raises as `decode` does."""
    return decode_with_notes(data).image


def decode_with_notes(data: bytes) -> Decoded:
    """Decode like `decode_bytes`, and also return which rules were applied."""
    if not data:
        raise UndecodableError("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow warns about large images, which are checked here, and about damaged metadata.
            warnings.simplefilter("ignore")
            return _decode(data)
    except UndecodableError:
        raise
    except UnidentifiedImageError:
        raise UndecodableError(f"not an image of a known format ({', '.join(FORMATS)})") from None
    except Image.DecompressionBombError:
        raise UndecodableError(f"more than {MAX_PIXELS} pixels") from None
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UndecodableError(f"damaged: {reason}") from None


def read_image_file(path: Path) -> bytes:
    """Return the bytes of a regular file, or of one in a tar archive.

    Raises `UndecodableError` also for a pipe or a device, which could block forever.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UndecodableError("not a regular file")
        if status.st_size > MAX_BYTES:
            raise UndecodableError(f"{status.st_size} bytes, more than {MAX_BYTES}")
        return path.read_bytes()
    except NotADirectoryError:
        return _read_from_archive(path)
    except FileNotFoundError:
        raise UndecodableError("no such file") from None
    except OSError as error:
        raise UndecodableError(f"cannot be read: {os.strerror(error.errno or 0)}") from None


def image_exists(path: Path) -> bool:
    """Return whether there is such a file, or such a file in a tar archive."""
    if os.path.isfile(path):  # noqa: PTH113
        return True
    place = split_path(path)
    try:
        return place is not None and place[1] in list_members(place[0])
    except TarError:
        return False


def _read_from_archive(path: Path) -> bytes:
    place = split_path(path)
    try:
        member = list_members(place[0]).get(place[1]) if place else None
        if place is None or member is None:
            raise UndecodableError("no such file")
        if member.size > MAX_BYTES:
            raise UndecodableError(f"{member.size} bytes, more than {MAX_BYTES}")
        return read_member(place[0], member)
    except TarError as error:
        raise UndecodableError(f"cannot be read: {error}") from None
    except OSError as error:
        raise UndecodableError(f"cannot be read: {os.strerror(error.errno or 0)}") from None


def _decode(data: bytes) -> Decoded:
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_size(*image.size)
        _check_memory(image)
        notes = [ANIMATED] if getattr(image, "is_animated", False) and image.format != "MPO" else []
        if image.format == "PNG":
            _check_png(data)
            if data[_PNG_DEPTH] == 16:
                notes.append(DEEP)
        # Phones append a second picture to a JPEG file; Pillow calls that format MPO.
        format_name = "JPEG" if image.format == "MPO" else str(image.format)
        before = _transposition(image)
        image.load()  # rotates a TIFF, and reads the EXIF data at the end of a PNG
        transposition = _transposition(image)
        picture, note = _to_rgb(image)
    if note:
        notes.append(note)
    if transposition is not None:
        picture = picture.transpose(transposition)
    if transposition is not None or before is not None:
        notes.append(ROTATED)
    return Decoded(picture, format_name, tuple(dict.fromkeys(notes)))


def _check_size(width: int, height: int) -> None:
    if min(width, height) < MIN_SIDE:
        raise UndecodableError(f"{width}x{height} pixels, a side below {MIN_SIDE}")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UndecodableError(f"{width}x{height} pixels, one side more than {MAX_ASPECT} times the other")
    if width * height > MAX_PIXELS:
        raise UndecodableError(f"{width}x{height} pixels, more than {MAX_PIXELS} in all")


def _check_memory(image: Image.Image) -> None:
    width, height = image.size
    if image.format == "TIFF":
        # The tiles of a TIFF may be larger than the picture.
        tags = getattr(image, "tag_v2", {})
        width, height = max(width, tags.get(_TILE_WIDTH, 0)), max(height, tags.get(_TILE_LENGTH, 0))
    opaque = image.mode in ("1", "L", "P", "RGB", "CMYK", "YCbCr") and not image.has_transparency_data
    pixel = OPAQUE_PIXEL if opaque else OTHER_PIXEL
    memory = width * height * (WEBP_PIXEL if image.format == "WEBP" else pixel)
    if memory > MAX_MEMORY:
        raise UndecodableError(
            f"{width}x{height} pixels of {image.format} ({image.mode}), which take {memory / 1e6:.0f} MB to "
            f"decode, more than {MAX_MEMORY / 1e6:.0f} MB"
        )


def _check_png(data: bytes) -> None:
    """Check the checksums of a PNG, which decoding does not do."""
    with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
        image.verify()


def _transposition(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TRANSPOSITIONS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata; the picture itself may be intact
        return None


def _to_rgb(image: Image.Image) -> tuple[Image.Image, str | None]:
    if image.mode.startswith(("I", "F")):
        return _rescale(image), DEEP
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB"), ALPHA
    if image.mode == "RGB":
        return image.copy(), None
    return image.convert("RGB"), COLOR


def _rescale(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise UndecodableError("floating-point samples, whose range is unknown; convert the file to 8 bits")
    samples = np.asarray(image.convert("I"))  # (height, width)
    if samples.min() < 0 or samples.max() > 0xFFFF:
        raise UndecodableError("32-bit samples, whose range is unknown; convert the file to 8 bits")
    return Image.fromarray(((samples + 128) // 257).astype(np.uint8)).convert("RGB")
