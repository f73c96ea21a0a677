"""The examination of image files: digest, size, and whether they can be decoded.

Several processes decode files. A scratch file caches the findings, each valid as long as the file is
unchanged (`fne.core.stat_cache`) and the versions of the decoder and of the findings are the same. It may be
deleted or damaged at any time.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from pydantic import TypeAdapter, ValidationError

from fne.core.files import text_digest
from fne.core.isolation import crash_proof_map
from fne.core.progress import tracked
from fne.core.stat_cache import FileState, VerifiedFiles, file_state
from fne.datasets.readers.base import EXTENSIONS
from fne.store.images import DECODER_VERSION, UndecodableError, decode_with_notes, read_image_file
from fne.store.tar_files import split_path

FINDING_VERSION = 1  # increased when a finding gets new fields
MISNAMED = "named like another format, read by their content"


@dataclass(frozen=True)
class Finding:
    """The result of examining one image file."""

    sha256: str = ""
    pixels: str = ""  # the digest of the decoded pixels, which lossless copies share
    bytes: int = 0
    width: int = 0
    height: int = 0
    notes: tuple[str, ...] = ()  # what is unusual about the file
    reason: str | None = None  # why the file cannot be used


DIED = Finding(reason="the process that decoded it died")
_FINDING = TypeAdapter(Finding)


def examine_all(paths: Sequence[Path], workers: int, cache: Path | None) -> dict[Path, Finding]:
    """Examine files (absolute paths) in several processes; those with a cached finding are not read."""
    records = VerifiedFiles(cache)
    states = {path: _state(path) for path in paths}
    known = {path: _known(records, path, state) for path, state in states.items()}
    findings = {path: finding for path, finding in known.items() if finding}
    fresh = [path for path in paths if path not in findings]
    results = crash_proof_map(examine, fresh, workers)
    for path, found in tracked(results, "decoding images", len(fresh), "image"):
        findings[path] = _FINDING.validate_python(found) if found else DIED
        state = states[path]
        if found and state:
            records.record(state, _purpose(path), _FINDING.dump_json(findings[path]).decode())
    records.compact()
    return findings


def examine(path: Path) -> Finding:
    """Read and decode one image file; faults are part of the finding and never raised."""
    try:
        data = read_image_file(path)
        decoded = decode_with_notes(data)
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


def findings_file(scratch: Path, root: Path) -> Path:
    """Return the scratch file of one data set; its name depends on the path of the data set."""
    return scratch / f"{text_digest(str(root.absolute()))[:16]}.findings"


def _pixels_digest(image: Image.Image) -> str:
    return hashlib.sha256(f"{image.width} x {image.height}".encode() + image.tobytes()).hexdigest()


def _known(records: VerifiedFiles, path: Path, state: FileState | None) -> Finding | None:
    recorded = records.lookup(state, _purpose(path)) if state else None
    try:
        return _FINDING.validate_json(recorded) if recorded else None
    except ValidationError:  # written by another version
        return None


def _purpose(path: Path) -> str:
    # The name matters: a finding says whether it fits the content.
    return f"{DECODER_VERSION} {FINDING_VERSION} {path}"


def _state(path: Path) -> FileState | None:
    place = split_path(path)
    try:
        return file_state(place[0] if place else path)
    except OSError:
        return None
