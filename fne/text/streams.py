"""Streams over a file that is read once: hashed, and unpacked if gzip compressed it."""

import hashlib
import io
import zlib
from pathlib import Path
from typing import Any, TypeAlias

from fne.core.errors import InputError

Stream: TypeAlias = "io.BufferedReader[Any]"

BLOCK = 2**20  # bytes that are read at once
# Text shrinks three times. What shrinks a hundred times was made to fill a disk or a memory.
MAX_RATIO = 100


class HashingReader(io.RawIOBase):
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: io.RawIOBase) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        """Return true: the stream is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return the number of bytes."""
        count = self.file.readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:count])
        return count


class GzipReader(io.RawIOBase):
    """The content of a gzip file, which may have several members.

    Unlike `gzip.GzipFile`, it refuses a file that expands far more than text does.

    Raises:
        InputError: while reading, if the file is damaged, cut short or expands too much.
    """

    def __init__(self, path: Path, stream: Stream) -> None:
        self.path = path
        self.stream = stream
        self.member = zlib.decompressobj(wbits=31)
        self.pending = b""
        self.taken = self.given = 0

    def readable(self) -> bool:
        """Return true: the stream is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, wholly unless the content ends; return the number of bytes."""
        view = memoryview(buffer)
        filled = 0
        while filled < len(view):
            content = self._next(len(view) - filled)
            if not content:
                break
            view[filled : filled + len(content)] = content
            filled += len(content)
            self.given += len(content)
            if self.given > MAX_RATIO * max(self.taken, BLOCK):
                raise InputError(
                    f"{self.path}: expands to more than {MAX_RATIO} times its size; "
                    "unpack it and name the result"
                )
        return filled

    def _next(self, size: int) -> bytes:
        """Return up to `size` bytes of the content, or none at its end."""
        while True:
            if not self.pending:
                self.pending = self.stream.read(BLOCK // 16)
                self.taken += len(self.pending)
            if self.member.eof:
                if not self.pending:
                    return b""
                # Zeros may follow a member.
                self.pending = self.pending.lstrip(b"\0")
                if not self.pending:
                    continue
                self.member = zlib.decompressobj(wbits=31)
            elif not self.pending:
                raise InputError(f"{self.path}: its compressed content is cut short; fetch the file again")
            try:
                content = self.member.decompress(self.pending, size)
            except zlib.error as error:
                raise InputError(f"{self.path}: damaged ({error}); fetch the file again") from None
            self.pending = self.member.unused_data if self.member.eof else self.member.unconsumed_tail
            if content:
                return content
