"""The examination of image files: digest, size, and whether they can be decoded.

Files are decoded in several processes, and the findings are cached in a scratch file. A cached
finding is valid as long as the file is unchanged (see `fne.core.stat_cache`) and the versions of the
decoder and of the findings are the same. The scratch file may be deleted or damaged
at any time: then the files are examined again.
"""

import hashlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from PIL import Image
from pydantic import TypeAdapter, ValidationError

from fne.core.files import text_digest
from fne.core.progress import tracked
from fne.core.stat_cache import FileState, VerifiedFiles, file_state
from fne.datasets.readers.base import EXTENSIONS
from fne.store.images import DECODER_VERSION, UndecodableError, decode_with_notes, read_image_file
from fne.store.tar_files import split_path

# Files that are submitted to the processes together.
BATCH = 256
FINDING_VERSION = 1  # increased when a finding gets new fields
MISNAMED = "named like another format, read by their content"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Finding:
    """The result of examining one image file.

    Attributes:
        sha256: the digest of the file.
        pixels: the digest of the decoded pixels, which lossless copies share.
        bytes: the size of the file.
        width: the width in pixels.
        height: the height in pixels.
        notes: what is unusual about the file.
        reason: why the file cannot be used, or None.
    """

    sha256: str = ""
    pixels: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0
    notes: tuple[str, ...] = ()
    reason: str | None = None


DIED = Finding(reason="the process that decoded it died")
_FINDING = TypeAdapter(Finding)


def examine_all(paths: Sequence[Path], workers: int, cache: Path | None) -> dict[Path, Finding]:
    """Examine all files in several processes; files with a valid cached finding are not read.

    Args:
        paths: absolute paths.
        workers: the number of processes.
        cache: the file that keeps the findings for the next run, or None.
    """
    records = VerifiedFiles(cache)
    states = {path: _state(path) for path in paths}
    known = {path: _known(records, path, state) for path, state in states.items()}
    findings = {path: finding for path, finding in known.items() if finding}
    fresh = [path for path in paths if path not in findings]
    results = crash_proof_map(examine, fresh, workers)
    for path, finding in tracked(results, "decoding images", len(fresh), "image"):
        findings[path] = finding or DIED
        state = states[path]
        if finding and state:
            records.record(state, _purpose(path), _FINDING.dump_json(finding).decode())
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


def crash_proof_map(
    work: Callable[[Path], Result], paths: Sequence[Path], workers: int
) -> Iterator[tuple[Path, Result | None]]:
    """Yield each path with `work(path)`, or with None if its process died.

    A process dies if the decoder crashes on a file, or if it is killed because memory ran out.
    This also breaks Python's process pool. All files without a result are then processed one by
    one in a pool of one process, which identifies the file that caused it.

    Args:
        work: a function of a module, which must not raise.
        paths: the files.
        workers: the number of processes; with 0 or 1 the work is done in this process.
    """
    if workers <= 1:
        yield from ((path, work(path)) for path in paths)
        return
    pool = _pool(min(workers, len(paths)))
    try:
        for start in range(0, len(paths), BATCH):
            suspects = []
            futures = [(path, _submit(pool, work, path)) for path in paths[start : start + BATCH]]
            for path, future in futures:
                try:
                    yield path, future.result()
                except BrokenProcessPool:
                    suspects.append(path)
            if suspects:
                pool.shutdown(cancel_futures=True)
                yield from _one_by_one(work, suspects)
                pool = _pool(workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_by_one(work: Callable[[Path], Result], paths: list[Path]) -> Iterator[tuple[Path, Result | None]]:
    pool = _pool(1)
    try:
        for path in paths:
            try:
                yield path, _submit(pool, work, path).result()
            except BrokenProcessPool:
                yield path, None
                pool.shutdown(cancel_futures=True)
                pool = _pool(1)
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, work: Callable[[Path], Result], path: Path) -> Future[Result]:
    # Submitting may start a process, which inherits the blocked signals: so only the parent handles
    # Ctrl-C, and the processes print no tracebacks. In the parent a blocked signal is delivered later,
    # whereas an ignored one would be lost.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, path)
    except BrokenProcessPool as error:  # an earlier file has broken the pool
        future: Future[Result] = Future()
        future.set_exception(error)
        return future
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not "fork": a forked copy of a process with threads can deadlock.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max(1, workers), mp_context=context)


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
