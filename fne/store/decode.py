"""Decoding of image files to RGB: one fixed set of rules for every stage that looks at pixels.

- The format is told from the content, never from the name, and must be one of `FORMATS`.
- Palette, gray, 1-bit, CMYK and YCbCr become RGB; color profiles are ignored.
- Transparent pixels are composited on white.
- 16-bit gray is rescaled to 8 bits; samples without a known range (32-bit, float) are refused.
- The EXIF orientation is applied.
- Of an animation the first frame counts.
- The size is judged from the header, before anything is decoded: `MIN_SIDE`, `MAX_ASPECT`
  and `MAX_PIXELS`.

`DECODER_VERSION` is raised whenever one of these rules changes the pixels of some file.
"""

import io
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

DECODER_VERSION = 1

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
MIN_SIDE = 8
MAX_ASPECT = 50
MAX_PIXELS = 89_478_485  # 268 MB of RGB, the size at which Pillow begins to warn
MAX_BYTES = 1 << 29

COLOR = "not RGB (palette, gray, 1-bit or CMYK), converted to RGB"
ALPHA = "transparent, composited on white"
DEEP = "of 16 bits, rescaled to 8"
ROTATED = "turned by their EXIF orientation"
ANIMATED = "animated, first frame taken"

_PNG_DEPTH = 24  # where a PNG's header says how many bits a sample has
_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UndecodableError(ValueError):
    """An image file that is refused; the message is the reason, in one line."""


@dataclass(frozen=True)
class Decoded:
    """An RGB image, the format of its file, and which rules had to be applied."""

    image: Image.Image
    format: str
    notes: tuple[str, ...]


def decode(path: Path) -> Image.Image:
    """Return the RGB image in a file.

    Raises:
        UndecodableError: if the file is missing, unreadable, or refused by the rules above.
    """
    return decode_bytes(read_bytes(path))


def decode_bytes(data: bytes) -> Image.Image:
    """Return the RGB image in the bytes of a file; raises as `decode` does."""
    return decode_noting(data).image


def decode_noting(data: bytes) -> Decoded:
    """Like `decode_bytes`, and say which rules were applied."""
    if not data:
        raise UndecodableError("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow warns about big images, which are judged here, and about damaged metadata.
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


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file; a pipe or device, which could block forever, is refused."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UndecodableError("not a regular file")
        if status.st_size > MAX_BYTES:
            raise UndecodableError(f"{status.st_size} bytes, more than {MAX_BYTES}")
        return path.read_bytes()
    except FileNotFoundError:
        raise UndecodableError("no such file") from None
    except OSError as error:
        raise UndecodableError(f"cannot be read: {os.strerror(error.errno or 0)}") from None


def _decode(data: bytes) -> Decoded:
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _refuse_size(*image.size)
        notes = [ANIMATED] if getattr(image, "is_animated", False) and image.format != "MPO" else []
        if image.format == "PNG":
            _verify(data)
            if data[_PNG_DEPTH] == 16:
                notes.append(DEEP)
        # Phones append a second picture to a JPEG; Pillow calls such a file MPO.
        format_name = "JPEG" if image.format == "MPO" else str(image.format)
        turned = _turn(image)
        image.load()  # turns a TIFF, and reads the EXIF data at the end of a PNG
        turn = _turn(image)
        picture, note = _to_rgb(image)
    if note:
        notes.append(note)
    if turn is not None:
        picture = picture.transpose(turn)
    if turn is not None or turned is not None:
        notes.append(ROTATED)
    return Decoded(picture, format_name, tuple(dict.fromkeys(notes)))


def _refuse_size(width: int, height: int) -> None:
    if min(width, height) < MIN_SIDE:
        raise UndecodableError(f"{width}x{height} pixels, a side below {MIN_SIDE}")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UndecodableError(f"{width}x{height} pixels, one side more than {MAX_ASPECT} times the other")
    if width * height > MAX_PIXELS:
        raise UndecodableError(f"{width}x{height} pixels, more than {MAX_PIXELS} in all")


def _verify(data: bytes) -> None:
    """Check a PNG's checksums, which decoding it does not."""
    with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
        image.verify()


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata of a sound picture
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
