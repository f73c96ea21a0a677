"""Reading files out of tar archives without unpacking them.

The path of such a file is that of the archive, followed by the name of the member: `00000.tar/0001.jpg`.
Nothing is written, so a member's name cannot lead out of a folder. Only regular files of uncompressed
archives are read: links, devices and sparse files do not count as members.
"""

import io
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

TAR = ".tar"
# A header of a member, or a long name before it, has far fewer bytes.
MAX_HEADER = 1 << 20
MAX_MEMBERS = 1_000_000


class TarError(Exception):
    """An archive that cannot be read; the message is the reason, in one line."""


class Member(NamedTuple):
    """Where the bytes of a file are in its archive."""

    offset: int
    size: int


def split_path(path: Path) -> tuple[Path, str] | None:
    """Return the archive and the name of a member that a path stands for, or None if it stands for none."""
    for parent in path.parents:
        if parent.name.lower().endswith(TAR) and parent.is_file():
            return parent, path.relative_to(parent).as_posix()
    return None


def list_members(archive: Path) -> dict[str, Member]:
    """Return the regular files of an archive by name, the last of equal names, or raise `TarError`."""
    status = archive.stat()
    return _list_members(archive, status.st_size, status.st_mtime_ns)


def read_member(archive: Path, member: Member) -> bytes:
    """Return the bytes of a file in an archive, or raise `TarError` if the archive ends before them."""
    with archive.open("rb") as file:
        file.seek(member.offset)
        content = file.read(member.size)
    if len(content) != member.size:
        raise TarError(f"{archive.name} ends within the file")
    return content


@lru_cache(maxsize=256)
def _list_members(archive: Path, size: int, modified: int) -> dict[str, Member]:
    """List an archive; size and modification time tell whether it has changed since."""
    members: dict[str, Member] = {}
    try:
        with _Headers(io.FileIO(archive)) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for each in tar:
                tar.members = []  # type: ignore[attr-defined]  # otherwise all headers stay in memory
                if each.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or each.issparse():
                    continue
                members[each.name] = Member(each.offset_data, each.size)
                if len(members) > MAX_MEMBERS:
                    raise TarError(f"has more than {MAX_MEMBERS:,} files; split it")
                if each.offset_data + each.size > size:
                    raise TarError(f"ends within {each.name!r}")
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TarError(f"not an uncompressed tar archive, or damaged ({reason})") from None
    return members


class _Headers(io.BufferedReader):
    """A file of which only headers are read: a long name of a gigabyte is refused."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return some bytes."""
        if size is None or not 0 <= size <= MAX_HEADER:
            raise ValueError(f"a header of {size} bytes")
        return super().read(size)
