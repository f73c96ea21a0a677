"""A close look at every image file: its digest, its size, and whether it can be decoded at all."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from tqdm import tqdm

from fne.datasets.names import EXTENSIONS
from fne.datasets.remember import Entry, Finding, recall, remember
from fne.datasets.workers import in_processes
from fne.store.decode import UndecodableError, decode_noting, read_bytes

MISNAMED = "named like another format, read by their content"
DIED = Finding(reason="the process that decoded it died")


def examine(path: Path) -> Finding:
    """Read and decode one image file; a refused file is a finding too, never an exception."""
    try:
        data = read_bytes(path)
        decoded = decode_noting(data)
    except UndecodableError as error:
        return Finding(reason=str(error))
    misnamed = [MISNAMED] if path.suffix.lower() not in EXTENSIONS[decoded.format] else []
    return Finding(
        sha256=hashlib.sha256(data).hexdigest(),
        pixels=_pixels_digest(decoded.image),
        bytes=len(data),
        width=decoded.image.width,
        height=decoded.image.height,
        notes=(*decoded.notes, *misnamed),
    )


def examine_all(paths: Sequence[Path], workers: int, remembered: Path | None) -> dict[Path, Finding]:
    """Examine all files, in several processes; what is remembered and unchanged is not read again.

    Args:
        paths: absolute paths.
        workers: the number of processes.
        remembered: the file that keeps the findings for the next run, or None.
    """
    known = recall(remembered) if remembered else {}
    stamps = {path: _stamp(path) for path in paths}
    entries: dict[str, Entry] = {}
    for path, stamp in stamps.items():
        entry = known.get(str(path))
        if entry and (entry.size, entry.changed) == stamp:
            entries[str(path)] = entry
    findings = {path: entries[str(path)].finding for path in paths if str(path) in entries}
    fresh = [path for path in paths if path not in findings]
    try:
        results = in_processes(examine, fresh, workers)
        for path, finding in tqdm(results, total=len(fresh), desc="images", disable=None):
            findings[path] = finding or DIED
            stamp = stamps[path]
            if finding and stamp:
                entries[str(path)] = Entry(*stamp, finding)
    finally:  # an interrupted run is remembered as well
        if remembered and fresh:
            remember(remembered, entries)
    return findings


def _pixels_digest(image: Image.Image) -> str:
    return hashlib.sha256(f"{image.width} x {image.height}".encode() + image.tobytes()).hexdigest()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
