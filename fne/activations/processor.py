"""Which processor computed which row.

Between different processors the last bits of a row may differ. So a note about each row
stands beside it: the name of the processor that computed it. Notes are lines of
text, a digest and a name; the last one about a row counts. A note is written before
its row, so that no row of ours ever stands there without one. Rows of older versions have none.
"""

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from fne.store.files import said_clearly
from fne.store.layout import Processors

UNKNOWN = "unknown"
CPUINFO = Path("/proc/cpuinfo")


@cache
def processor_name(device: str) -> str:
    """Return the name of this machine's processor of a kind, `cpu` or `cuda`."""
    import torch  # slow to import, and not needed for reading notes

    if device == "cuda":
        return torch.cuda.get_device_name()
    # A virtual machine may hide what its processor can do, and with it changes the last bits.
    return f"{_cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"


def note(path: Path, digest: str, processor: str) -> None:
    """Note which processor computed a row.

    Raises:
        InputError: if the disk is full.
    """
    with said_clearly(path), path.open("ab", buffering=0) as file:
        # It begins with a line's end as well: the one before may be half, if its writer was killed.
        file.write(f"\n{digest} {processor}\n".encode())


def read_notes(path: Path) -> dict[str, str]:
    """Return what a file of notes says, by the digests of the rows."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return {digest: name for digest, found, name in (line.partition(" ") for line in lines) if found}


def origin(ids: Mapping[str, str], processors: Mapping[str, str]) -> Processors:
    """Say in short which processors computed the rows of a store.

    Args:
        ids: the digest of each row's image, by the row's id.
        processors: the processors, by digests.

    Example:
        >>> origin({"a.jpg": "01", "b.jpg": "02"}, {"01": "EPYC", "02": "EPYC"})
        'EPYC'
        >>> origin({"a.jpg": "01", "b.jpg": "02"}, {"01": "EPYC"})
        {'EPYC': ['a.jpg'], 'unknown': ['b.jpg']}
    """
    made: dict[str, list[str]] = {}
    for row_id, digest in sorted(ids.items()):
        made.setdefault(processors.get(digest, UNKNOWN), []).append(row_id)
    return next(iter(made), UNKNOWN) if len(made) < 2 else dict(sorted(made.items()))


def processors_of(made: Processors, ids: Iterable[str]) -> dict[str, str]:
    """Return the processor of each row of a store, by the row's id: the other way round than `origin`."""
    if isinstance(made, str):
        return dict.fromkeys(ids, made)
    return {row_id: name for name, computed in made.items() for row_id in computed}


def _cpu_model() -> str:
    try:
        for line in CPUINFO.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
