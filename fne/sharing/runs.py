"""The run-cache: notes about what results were made from, so that DVC can restore them.

`dvc push --run-cache` sends all notes, but of the results only those that `dvc.lock` names. A
colleague's `dvc repro --pull` then finds the note about an experiment, and not its results.
Here the results are compared with the remote as well.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.params import load_params
from fne.sharing.depot import Depot
from fne.sharing.named import Out

RUNS = "runs"


def missing_notes(repo: Any, remote: str) -> list[str]:
    """Return the places of the notes that a remote has not, or not whole."""
    odb = repo.cloud.get_remote_odb(remote, hash_name="md5-dos2unix")
    odb.fs.fs.invalidate_cache()
    notes = _notes(repo)
    places = [note.relative_to(_folder(repo)).parts for note in notes]
    with ThreadPoolExecutor(odb.fs.jobs) as pool:
        sizes = pool.map(lambda place: _size(odb.fs, odb.fs.join(odb.path, RUNS, *place)), places)
        pairs = zip(notes, places, sizes, strict=True)
        return ["/".join(place) for note, place, size in pairs if size != note.stat().st_size]


def send_notes(repo: Any, remote: str) -> None:
    """Send all notes."""
    repo.stage_cache.push(remote)


def restorable_results(repo: Any, cache: Depot) -> list[Out]:
    """Return the results of those runs whose results are all in the local cache; others cannot be shared."""
    runs = [list(_results(note)) for note in _notes(repo)]
    there = cache.sizes(out.oid for outs in runs for out in outs)
    return [out for outs in runs if all(each.oid in there for each in outs) for out in outs]


def _size(fs: Any, path: str) -> int | None:
    try:
        size: int = fs.info(path)["size"]
    except FileNotFoundError:
        return None
    return size


def _folder(repo: Any) -> Path:
    return Path(repo.stage_cache.cache_dir)


def _notes(repo: Any) -> list[Path]:
    return sorted(path for path in _folder(repo).glob("*/*/*") if path.is_file())


def _results(note: Path) -> Iterator[Out]:
    try:
        outs = load_params(note).get("outs", [])
        yield from [Out(out["path"], out["md5"], out.get("size")) for out in outs if "md5" in out]
    except (InputError, TypeError, KeyError):
        return  # DVC removes a damaged note when it meets it
