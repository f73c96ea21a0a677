"""Image files of strangers, decoded in a process of its own.

A file that crashes a decoder, fills the memory or takes too long costs that process, and nothing else: the
next file gets a new one. The two processes exchange frames of plain bytes. Nothing that the decoding
process sends is executed or unpickled.

A request is a header (what is wanted, a number, the length) and the content of the file. A reply is a
header (the outcome, width, height, the length) and the pixels, a JPEG or the reason why the file is
refused.

`python -m fne.search.decode_process` is the decoding process; it ends with its standard input.
"""

import io
import os
import queue
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from PIL import Image, ImageOps

from fne.store.images import FORMATS, MAX_PIXELS, UndecodableError, decode_bytes

# What is wanted: the pixels of an image with at most so many, or a JPEG with sides of at most so many pixels.
PIXELS, JPEG = 1, 2
DONE, REFUSED = 0, 1
REQUEST, REPLY = struct.Struct("!BQQ"), struct.Struct("!BIIQ")
# Seconds that one file may take.
SECONDS = 10.0
# Bytes of memory that the decoding process may take: those that `fne.store.images` allows, and the libraries.
MEMORY = 3 << 30
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
    """Decoding processes, started when they are needed, one file at a time each.

    Args:
        processes: how many there are at most.
        seconds: how long one file may take.
    """

    def __init__(self, processes: int = 2, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._idle: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        for _ in range(processes):
            self._idle.put(None)

    def pixels(self, content: bytes, max_pixels: int) -> Picture:
        """Return the pixels of an image file, decoded as those of the catalog are.

        Raises:
            RefusedError: if it is no image, too large, takes too long or crashes the process.
        """
        found = self._ask(PIXELS, max_pixels, content)
        if len(found.content) != found.width * found.height * 3:
            raise RefusedError("the process that decoded it sent something else than its pixels")
        return found

    def jpeg(self, content: bytes, side: int) -> Picture:
        """Return an image file as a JPEG whose sides have at most `side` pixels; raises as `pixels` does."""
        return self._ask(JPEG, side, content)

    def close(self) -> None:
        """End the idle processes; those at work end with their file."""
        while True:
            try:
                worker = self._idle.get_nowait()
            except queue.Empty:
                return
            if worker:
                worker.kill()

    def _ask(self, wanted: int, number: int, content: bytes) -> Picture:
        with self._worker() as worker:
            return worker.ask(wanted, number, content, self._seconds)

    @contextmanager
    def _worker(self) -> "Iterator[_Worker]":
        worker = self._idle.get() or _Worker()
        try:
            yield worker
        finally:
            self._idle.put(worker if worker.alive else None)


class _Worker:
    """One decoding process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fne.search.decode_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries print about damaged files
            start_new_session=True,  # Ctrl-C is for the server
        )
        self.alive = True

    def ask(self, wanted: int, number: int, content: bytes, seconds: float) -> Picture:
        """Send a request and return the reply."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            outcome, width, height, answer = self._exchange(wanted, number, content)
        except (EOFError, OSError):
            self.kill()
            reason = f"took more than {seconds:g} s to decode" if late.is_set() else "crashed its decoder"
            raise RefusedError(reason) from None
        finally:
            timer.cancel()
        if outcome != DONE:
            raise RefusedError(answer.decode("utf-8", errors="replace"))
        return Picture(width, height, answer)

    def kill(self) -> None:
        """End the process."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):  # of what was still to be sent
                    stream.close()

    def _exchange(self, wanted: int, number: int, content: bytes) -> tuple[int, int, int, bytes]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(REQUEST.pack(wanted, number, len(content)) + content)
        self._process.stdin.flush()
        outcome, width, height, length = REPLY.unpack(_read(self._process.stdout, REPLY.size))
        return outcome, width, height, _read(self._process.stdout, length)


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


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until they end."""
    while True:
        try:
            wanted, number, length = REQUEST.unpack(_read(requests, REQUEST.size))
        except EOFError:
            return
        content = _read(requests, length)
        try:
            found = (decode_pixels if wanted == PIXELS else encode_jpeg)(content, number)
            replies.write(REPLY.pack(DONE, found.width, found.height, len(found.content)) + found.content)
        except (UndecodableError, MemoryError) as error:
            reason = (str(error) or "takes too much memory to decode").encode()
            replies.write(REPLY.pack(REFUSED, 0, 0, len(reason)) + reason)
        replies.flush()


def _check_pixels(content: bytes, max_pixels: int) -> None:
    width = height = 0
    # Pillow raises nearly anything on damaged bytes; `decode_bytes` gives the reason.
    with suppress(Exception), Image.open(io.BytesIO(content), formats=FORMATS) as image:
        width, height = image.size
    if width * height > max_pixels:
        raise UndecodableError(f"{width}x{height} pixels, more than {max_pixels} in all")


def _reduced_jpeg(content: bytes, side: int) -> Image.Image | None:
    """Return a large JPEG as small as its decoder makes it at no cost; None for any other file."""
    with (
        suppress(Exception),
        Image.open(io.BytesIO(content), formats=["JPEG"]) as image,
    ):  # as for `_check_pixels`
        if image.mode == "RGB" and 4 * side < min(image.size) and image.width * image.height <= MAX_PIXELS:
            image.draft("RGB", (2 * side, 2 * side))
            return ImageOps.exif_transpose(image)
    return None


def _read(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) != length:
        raise EOFError
    return content


def main() -> None:
    """Decode what comes on standard input, with limited memory and without writing any file."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may be printed there
    Image.init()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
