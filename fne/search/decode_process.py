"""Image files of strangers, decoded in processes of their own (`fne.core.isolation`).

A file that crashes a decoder, fills the memory or takes too long costs a process, and the next file gets a
new one.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageOps

from fne.core.errors import InputError
from fne.core.isolation import CrashedError, StalledError, TooLargeError, Workers
from fne.store.images import FORMATS, MAX_PIXELS, UndecodableError, decode_bytes

SECONDS = 10.0  # that one file may take
MEMORY = 3 << 30  # bytes: more than `fne.store.images` allows
QUALITY = 85


class RefusedError(ValueError):
    """A file that is not decoded; the message is the reason, in one line."""


@dataclass(frozen=True)
class Picture:
    """The result: raw RGB pixels or a JPEG, and the size in pixels."""

    width: int
    height: int
    content: bytes

    def image(self) -> Image.Image:
        """Return raw pixels as an image."""
        return Image.frombytes("RGB", (self.width, self.height), self.content)


class Decoder:
    """At most so many decoding processes, started when they are needed, for calls from several threads."""

    def __init__(self, processes: int = 2, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._workers = Workers(processes, MEMORY)

    def pixels(self, content: bytes, max_pixels: int) -> Picture:
        """Return the pixels of an image file, decoded as those of the catalog are.

        Raises:
            RefusedError: if it is not an image, too large, takes too long or crashes the process.
        """
        found = self._ask(decode_pixels, content, max_pixels)
        if len(found.content) != found.width * found.height * 3:
            raise RefusedError("the process that decoded it sent something else than its pixels")
        return found

    def jpeg(self, content: bytes, side: int) -> Picture:
        """Return an image file as a JPEG whose sides have at most `side` pixels; raises as `pixels` does."""
        return self._ask(encode_jpeg, content, side)

    def close(self) -> None:
        """End the idle processes; those at work end with their file."""
        self._workers.close()

    def _ask(self, make: Callable[[bytes, int], Picture], content: bytes, number: int) -> Picture:
        try:
            answer = self._workers.call(_make, (make, content, number), self._seconds)
        except InputError as error:
            raise RefusedError(error.message) from None
        except TooLargeError:
            raise RefusedError("takes too much memory to decode") from None
        except StalledError:
            raise RefusedError(f"took more than {self._seconds:g} s to decode") from None
        except CrashedError:
            raise RefusedError("crashed its decoder") from None
        match answer:
            case [[int(width), int(height)], bytes(made)]:
                return Picture(width, height, made)
        raise RefusedError("crashed its decoder")


def decode_pixels(content: bytes, max_pixels: int) -> Picture:
    """Return the pixels of an image file."""
    _check_pixels(content, max_pixels)
    image = decode_bytes(content)
    return Picture(image.width, image.height, image.tobytes())


def encode_jpeg(content: bytes, side: int) -> Picture:
    """Return an image file as a smaller JPEG."""
    image = _reduced_jpeg(content, side) or decode_bytes(content)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return Picture(image.width, image.height, buffer.getvalue())


def _make(make: Callable[[bytes, int], Picture], content: bytes, number: int) -> Iterator[Any]:
    """Yield the size and the content of a picture."""
    try:
        made = make(content, number)
    except UndecodableError as error:
        raise InputError(str(error)) from None
    yield made.width, made.height
    yield made.content


def _check_pixels(content: bytes, max_pixels: int) -> None:
    width = height = 0
    # Pillow raises nearly anything on damaged bytes; `decode_bytes` gives the reason.
    with suppress(Exception), Image.open(io.BytesIO(content), formats=FORMATS) as image:
        width, height = image.size
    if width * height > max_pixels:
        raise UndecodableError(f"{width}x{height} pixels, more than {max_pixels} in all")


def _reduced_jpeg(content: bytes, side: int) -> Image.Image | None:
    """Return a large JPEG as small as its decoder makes it at no cost; None for any other file."""
    # As for `_check_pixels`.
    with suppress(Exception), Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
        if image.mode == "RGB" and 4 * side < min(image.size) and image.width * image.height <= MAX_PIXELS:
            image.draft("RGB", (2 * side, 2 * side))
            return ImageOps.exif_transpose(image)
    return None
