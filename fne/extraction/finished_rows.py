"""The cache of finished rows in the scratch folder.

DVC deletes the outputs of a stage before it runs it, so rows that must survive a killed run are stored in the
scratch folder instead, in one folder per kind of row. The kind holds everything that determines a row apart
from the image, so rows of different kinds are never mixed. Within a kind, a row is found by the digest of its
image, whichever data set it belongs to. Processes, also of several users, can fill a folder at the same time.

The last bits of a row can differ between hardware. Therefore a line of text next to the rows records the
digest and the name of the hardware. Of several lines of a row, the last one counts. The line is written
before the row, so that a row never lacks it.
"""

import json
import platform
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fne.core.dvc import cache_folder, cache_object, content_md5, default_remote, last_run, read_listing
from fne.core.errors import InputError
from fne.core.files import check_own, readable_os_errors, sync, text_digest, write_text
from fne.extraction.extractor import Extractor
from fne.store.catalog import Image, read_images
from fne.store.journal import Journal
from fne.store.layout import MANIFEST, STORE_FILE, Hardware
from fne.store.rows import Rows

KIND = "kind.json"
HARDWARE_SUFFIX = ".made"
# The number of leading digits of an image's digest that name its journal: 256 journals, one lock each.
PREFIX = 2
# The number of digits of the checksum at the end of a note.
CHECKSUM = 16
UNKNOWN = "unknown"
CPUINFO = Path("/proc/cpuinfo")


class LockedJournal:
    """A journal of the scratch folder that this process has locked."""

    def __init__(self, journal: Journal, device: str) -> None:
        self._journal = journal
        self._device = device

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the digests that have no row yet."""
        finished = self._journal.read()
        return [digest for digest in digests if digest not in finished]

    def append(self, digest: str, values: np.ndarray, hardware: str | None = None) -> None:
        """Append one row and the hardware that computed it, by default that of this machine.

        Rows appended before an error, such as a full disk, are kept.
        """
        append_hardware(_hardware_file(self._journal), digest, hardware or hardware_name(self._device))
        self._journal.append(digest, values)

    def unlock(self) -> None:
        """Flush the rows to the disk and release the lock."""
        try:
            if (file := _hardware_file(self._journal)).exists():
                with readable_os_errors(file):
                    sync(file)
        finally:
            self._journal.unlock()


class Scratch:
    """The finished rows of one kind."""

    def __init__(self, folder: Path, kind: dict[str, Any], features: int) -> None:
        description = json.dumps(kind | {"features": features}, indent=1, sort_keys=True) + "\n"
        self.folder = folder / text_digest(description)[:16]
        self._features = features
        self._device = str(kind.get("device", "cpu"))
        self._description = description
        # A folder that cannot be written may still hold finished rows; writing rows says what is wrong.
        with suppress(InputError):
            self._write_kind()

    def _write_kind(self) -> None:
        check_own(self.folder / KIND)
        if not (self.folder / KIND).exists():
            write_text(self.folder / KIND, self._description)

    def rows(self, digests: Iterable[str]) -> dict[str, np.ndarray]:
        """Return the finished rows among `digests`, memory-mapped."""
        found = {}
        for prefix, wanted in _by_prefix(digests).items():
            finished = self._journal(prefix).read()
            found.update({digest: finished[digest] for digest in wanted if digest in finished})
        return found

    def hardware(self, digests: Iterable[str]) -> dict[str, str]:
        """Return the hardware that computed the rows of `digests`, where it is recorded."""
        found = {}
        for prefix, wanted in _by_prefix(digests).items():
            recorded = read_hardware(_hardware_file(self._journal(prefix)))
            found.update({digest: recorded[digest] for digest in wanted if digest in recorded})
        return found

    def by_journal(self, digests: Iterable[str]) -> list[list[str]]:
        """Return digests in groups, one per journal."""
        return list(_by_prefix(digests).values())

    def claim(self, digests: Sequence[str]) -> LockedJournal | None:
        """Lock the journal of some digests, which the caller unlocks; None if another process locked it."""
        self._write_kind()
        journal = self._journal(digests[0][:PREFIX])
        return LockedJournal(journal, self._device) if journal.lock() else None

    def claims(self, digests: Iterable[str]) -> Iterator[tuple[LockedJournal, list[str], list[str]]]:
        """Claim each group of digests that is free, and yield its journal, the group, and what it misses."""
        for wanted in self.by_journal(digests):
            if journal := self.claim(wanted):
                yield journal, wanted, journal.missing(wanted)

    def is_busy(self, digests: Iterable[str]) -> bool:
        """Return whether other processes have locked the journals of all `digests`."""
        for prefix in _by_prefix(digests):
            journal = self._journal(prefix)
            if journal.lock():
                journal.unlock()
                return False
        return True

    def owners(self, digests: Iterable[str]) -> list[str]:
        """Return the ids of the processes that have locked the journals of `digests`."""
        return sorted({self._journal(prefix).owner() for prefix in _by_prefix(digests)} - {""})

    def _journal(self, prefix: str) -> Journal:
        return Journal(self.folder / f"{prefix}.rows", self._features)


def reuse_cached_rows(
    scratch: Scratch, wanted: Sequence[Image], store: Path, images: Path, extractor: Extractor
) -> None:
    """Copy missing rows, and the hardware that computed them, from the previous store in DVC's cache.

    DVC deletes the folder of the stage before it runs the stage, but keeps the cached objects. So if only a
    comment in the code has changed, or a colleague's store was pulled, the rows need not be computed again.
    `store` and `images` are the paths of the store and its catalog in `dvc.lock`.
    """
    digests = {image.sha256 for image in wanted}
    missing = digests - set(scratch.rows(digests))
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        rows, sources = _open(Path(folder), store, images)
        if rows is None or rows.layers != extractor.layers or rows.artifact.settings != extractor.kind:
            return
        hardware = hardware_by_row(rows.hardware or UNKNOWN, rows.ids)
        for journal, _, unfinished in scratch.claims(missing & set(sources)):
            try:
                for digest in unfinished:
                    row_id = sources[digest]
                    journal.append(digest, rows.read([row_id])[0], hardware.get(row_id, UNKNOWN))
            finally:
                journal.unlock()


def fetchable_from(store: Path, settings: Mapping[str, Any]) -> str | None:
    """Return the remote that may have a store of the same settings that DVC's cache lacks, or None.

    In a clone that never fetched the store, an edited comment would otherwise start days of work.
    """
    try:
        stage = last_run(store)
        recorded = stage.params["params.yaml"]["extract"]
        if any(recorded.get(key) != value for key, value in settings.items() if key != "shards"):
            return None
        if cache_object(cache_folder(), stage.outs[str(store)]).exists():
            return None
        return default_remote()
    except (OSError, KeyError, TypeError, AttributeError, InputError):
        return None  # no project, no lock file, or nothing recorded


@cache
def hardware_name(device: str) -> str:
    """Return the name of this machine's `cpu` or `cuda` device."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    # A virtual machine can hide instruction sets of its CPU, which changes the last bits of a row.
    return f"{_cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"


def append_hardware(path: Path, digest: str, hardware: str) -> None:
    """Record which hardware computed a row."""
    check_own(path)
    with readable_os_errors(path), path.open("ab", buffering=0) as file:
        # It starts with a newline too, because a killed process may have left an incomplete line.
        line = f"{digest} {hardware}"
        file.write(f"\n{line}\t{text_digest(line)[:CHECKSUM]}\n".encode())


def read_hardware(path: Path) -> dict[str, str]:
    """Return the recorded hardware by the digests of the rows, without damaged lines."""
    check_own(path)
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    notes = (line.rpartition("\t")[0] for line in lines if _is_intact(line))
    return {digest: name for digest, found, name in (note.partition(" ") for note in notes) if found}


def _is_intact(line: str) -> bool:
    note, _, checksum = line.rpartition("\t")
    return text_digest(note)[:CHECKSUM] == checksum


def hardware_warning(hardware: Hardware) -> str | None:
    """Return a warning about rows of unknown hardware, or None if there are none."""
    if hardware == UNKNOWN:
        count = "all"
    elif isinstance(hardware, dict) and UNKNOWN in hardware:
        count = str(len(hardware[UNKNOWN]))
    else:
        return None
    return (
        f"Warning: the scratch folder has no intact note of which hardware computed {count} rows; "
        f"the manifest calls it '{UNKNOWN}'"
    )


def summarize_hardware(ids: Mapping[str, str], hardware: Mapping[str, str]) -> Hardware:
    """Return which hardware computed the rows of a store, in the form that its manifest records.

    Example:
        >>> summarize_hardware({"a.jpg": "01", "b.jpg": "02"}, {"01": "EPYC", "02": "EPYC"})
        'EPYC'
        >>> summarize_hardware({"a.jpg": "01", "b.jpg": "02"}, {"01": "EPYC"})
        {'EPYC': ['a.jpg'], 'unknown': ['b.jpg']}
    """
    rows: dict[str, list[str]] = {}
    for row_id, digest in sorted(ids.items()):
        rows.setdefault(hardware.get(digest, UNKNOWN), []).append(row_id)
    return next(iter(rows), UNKNOWN) if len(rows) < 2 else dict(sorted(rows.items()))


def hardware_by_row(summary: Hardware, ids: Iterable[str]) -> dict[str, str]:
    """Return the hardware of each row of a store by the row's id: the inverse of `summarize_hardware`."""
    if isinstance(summary, str):
        return dict.fromkeys(ids, summary)
    return {row_id: name for name, rows in summary.items() for row_id in rows}


def _cpu_model() -> str:
    try:
        for line in CPUINFO.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _hardware_file(journal: Journal) -> Path:
    return journal.path.with_suffix(HARDWARE_SUFFIX)


def _by_prefix(digests: Iterable[str]) -> dict[str, list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for digest in digests:
        groups[digest[:PREFIX]].append(digest)
    return dict(sorted(groups.items()))


def _open(folder: Path, store: Path, images: Path) -> tuple[Rows | None, dict[str, str]]:
    """Return the previous store and its row ids by image digest, or None if it is not available."""
    try:
        stage = last_run(store)
        made, cache = stage.deps | stage.outs, cache_folder()
        for name, md5 in read_listing(cache, made[str(store)]).items():
            # The names come from others: links are made only at those that a store has.
            if not STORE_FILE.fullmatch(name):
                raise InputError(f"{store}: {name!r} is not a file of a row store")
            cached = cache_object(cache, md5).resolve()
            # The manifest has the digests of all shards, which are checked below.
            if name == MANIFEST and content_md5(cached) != md5:
                raise InputError(f"{cached}: damaged")
            (folder / name).symlink_to(cached)
        catalog, artifact = read_images(cache_object(cache, made[str(images)]))
        rows = Rows.open(folder, "activations")
        rows.verify()
    except (OSError, KeyError, TypeError, ValueError, InputError):
        # Something is missing or damaged: the rows are computed instead.
        return None, {}
    if rows.artifact.lineage.get("images", {}).get("digest") != artifact.digest:
        return None, {}
    return rows, {image.sha256: image.id for image in catalog}
