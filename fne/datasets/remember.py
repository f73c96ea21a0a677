"""What was found out about image files, remembered from run to run in a scratch file.

An entry holds as long as the file's size and time of change and the versions of the
decoder and of the finding stay the same. The scratch file may vanish or be damaged at
any time: then everything is examined again.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fne.core.errors import InputError
from fne.store.decode import DECODER_VERSION
from fne.store.files import text_digest, write_text

FINDING_VERSION = 1  # raised when a finding holds more than before


@dataclass(frozen=True)
class Finding:
    """What there is to know about one image file; `reason` says why it was refused.

    `pixels` is the digest of the decoded picture: it is the same for a file saved again without loss.
    """

    sha256: str = ""
    pixels: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0
    notes: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Entry:
    """A finding, and the state of the file it was made from."""

    size: int
    changed: int  # nanoseconds
    finding: Finding


@dataclass(frozen=True)
class _Memory:
    decoder: int
    finding: int
    entries: dict[str, Entry]


_MEMORY = TypeAdapter(_Memory)


def memory(scratch: Path, root: Path) -> Path:
    """Return the scratch file of one data set: its name depends on the folder, as its entries do."""
    return scratch / f"{text_digest(str(root.absolute()))[:16]}.json"


def recall(path: Path) -> dict[str, Entry]:
    """Return the entries by absolute path; nothing if the file is missing, damaged or of another version."""
    try:
        memory = _MEMORY.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
    current = (memory.decoder, memory.finding) == (DECODER_VERSION, FINDING_VERSION)
    return memory.entries if current else {}


def remember(path: Path, entries: dict[str, Entry]) -> None:
    """Write the entries; a scratch folder that cannot be written to only costs time."""
    with suppress(OSError, InputError):
        write_text(path, _MEMORY.dump_json(_Memory(DECODER_VERSION, FINDING_VERSION, entries)).decode())
