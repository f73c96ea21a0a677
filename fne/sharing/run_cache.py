"""DVC's run cache on a remote: entries about finished runs, from which DVC can restore results.

`dvc push --run-cache` sends all entries, but only results that `dvc.lock` records: `dvc repro --pull` finds
an experiment's entry without its results. So `fne verify --run-cache` compares both.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.settings import load_params
from fne.sharing.verify_remote import ObjectStore, TrackedOutput

RUNS = "runs"


def missing_entries(repo: Any, remote: str) -> list[str]:
    """Return the paths of the local entries that a remote does not have, or not completely."""
    odb = repo.cloud.get_remote_odb(remote, hash_name="md5-dos2unix")
    odb.fs.fs.invalidate_cache()
    entries = _entries(repo)
    places = [entry.relative_to(_folder(repo)).parts for entry in entries]
    with ThreadPoolExecutor(odb.fs.jobs) as pool:
        sizes = pool.map(lambda place: _size(odb.fs, odb.fs.join(odb.path, RUNS, *place)), places)
        found = zip(entries, places, sizes, strict=True)
        return ["/".join(place) for entry, place, size in found if size != entry.stat().st_size]


def restorable_results(repo: Any, cache: ObjectStore) -> list[TrackedOutput]:
    """Return the results of all runs whose results are complete in the local cache."""
    runs = [list(_results(entry)) for entry in _entries(repo)]
    there = cache.sizes(output.oid for outputs in runs for output in outputs)
    return [output for outputs in runs if all(each.oid in there for each in outputs) for output in outputs]


def _size(fs: Any, path: str) -> int | None:
    try:
        size: int = fs.info(path)["size"]
    except FileNotFoundError:
        return None
    return size


def _folder(repo: Any) -> Path:
    return Path(repo.stage_cache.cache_dir)


def _entries(repo: Any) -> list[Path]:
    return sorted(path for path in _folder(repo).glob("*/*/*") if path.is_file())


def _results(entry: Path) -> Iterator[TrackedOutput]:
    try:
        outs = load_params(entry).get("outs", [])
        yield from [TrackedOutput(out["path"], out["md5"], out.get("size")) for out in outs if "md5" in out]
    except (InputError, TypeError, KeyError):
        return  # DVC removes a damaged entry when it finds it
