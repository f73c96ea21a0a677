"""What DVC knows about the artifacts of the pipeline, and what therefore mends one that is damaged."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fne.core.params import load_params

PIPELINE, LOCK = Path("dvc.yaml"), Path("dvc.lock")
CAPTIONS = Path("data/captions.jsonl")


@dataclass(frozen=True)
class Out:
    """Something that DVC keeps.

    Attributes:
        path: where it is.
        stage: what writes it; None for what was added or imported.
        md5: what the lock file or the `.dvc` file names; None before the first run.
        cached: whether it is in DVC's cache, and not in Git.
    """

    path: Path
    stage: str | None
    md5: str | None
    cached: bool


def pipeline_outs() -> dict[Path, Out]:
    """Return everything that the stages of this folder's `dvc.yaml` write, in their order."""
    if not PIPELINE.exists():
        return {}
    stages = load_params(PIPELINE).get("stages", {})
    locked = {path: md5 for block in _locked().values() for path, md5 in _entries(block.get("outs", []))}
    outs = [
        Out(path, stage, locked.get(path), options.get("cache", True))
        for stage, block in stages.items()
        for key in ("outs", "metrics", "plots")
        for path, options in _named(block.get(key, []))
    ]
    return {out.path: out for out in outs}


def in_project(path: Path) -> Path:
    """Return a path as `dvc.yaml` has it, however it was typed, if it leads below this folder."""
    # The last part may be a link into the cache, which is not followed.
    place = path.parent.resolve() / path.name
    return place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else path


def added_out(path: Path) -> Out | None:
    """Return what `dvc add` or `dvc import` brought to `path`, if that is how it came."""
    note = path.with_name(f"{path.name}.dvc")
    if not note.is_file():
        return None
    # In a `.dvc` file, paths start from its own folder.
    digests = dict(_entries(load_params(note).get("outs", [])))
    return Out(path, None, digests.get(Path(path.name)), cached=True)


def stage_sources() -> list[Path]:
    """Return the dependencies that the lock file names: an imported store is one."""
    return [path for block in _locked().values() for path, _ in _entries(block.get("deps", []))]


def content_md5(path: Path) -> str:
    """Return the digest by which DVC knows a file or a folder."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    files = {str(each.relative_to(path)): each for each in path.rglob("*") if each.is_file()}
    listing = [{"md5": content_md5(files[name]), "relpath": name} for name in sorted(files)]
    return _md5(json.dumps(listing, sort_keys=True).encode()) + ".dir"


def remedy(path: Path, out: Out | None) -> str:
    """Say which command mends what is at `path`."""
    if out is None:
        return "no stage writes it: remove it and bring it again, or make it again with `fne import`"
    if out.md5 is None:
        return f"remove it and run `dvc repro {out.stage}`"
    if path.exists() and content_md5(path) == out.md5:
        if out.stage is None:
            return f"it came so; have it mended where it was made, then run `dvc update {path}.dvc`"
        return f"run `dvc repro --force {out.stage}`, which made it so"
    making = f", or `dvc repro {out.stage}`" if out.stage else ""
    if not out.cached:
        return f"remove it and run `git checkout {path}`{making}"
    damaged, missing = _cache_faults(out.md5)
    if damaged:
        unwanted, fetched = shlex.join([*map(str, damaged), str(path)]), shlex.quote(str(path))
        last = f"; where no remote has it, the last command is `dvc repro {out.stage}`" if out.stage else ""
        commands = f"`rm -rf {unwanted} && dvc pull {fetched}`"
        return f"its copy in the cache is damaged too; mend both: {commands}{last}"
    if missing:
        return f"remove it and run `dvc pull {path}`{making}"
    return f"remove it and run `dvc checkout {path}`"


def _locked() -> dict[str, dict[str, Any]]:
    stages: dict[str, dict[str, Any]] = load_params(LOCK).get("stages", {}) if LOCK.exists() else {}
    return stages


def _entries(entries: list[dict[str, Any]]) -> Iterator[tuple[Path, str]]:
    return ((Path(entry["path"]), entry["md5"]) for entry in entries if "md5" in entry)


def _named(entries: list[str | dict[str, Any]]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for entry in entries:
        yield from (
            [(Path(entry), {})]
            if isinstance(entry, str)
            else ((Path(name), options or {}) for name, options in entry.items())
        )


def _cache_faults(md5: str) -> tuple[list[Path], list[Path]]:
    """Return the damaged and the missing cache objects of an out."""
    cache = _cache(Path.cwd())
    objects = [cache / md5[:2] / md5[2:]]
    if md5.endswith(".dir") and _is_whole(objects[0]):
        listed = [entry["md5"] for entry in json.loads(objects[0].read_bytes())]
        objects += [cache / each[:2] / each[2:] for each in listed]
    there = [each for each in objects if each.exists()]
    return [each for each in there if not _is_whole(each)], [each for each in objects if each not in there]


def _is_whole(cached: Path) -> bool:
    if not cached.exists():
        return False
    return cached.parent.name + cached.name.removesuffix(".dir") == content_md5(cached)


@lru_cache
def _cache(project: Path) -> Path:
    from dvc.exceptions import NotDvcRepoError  # slow to import, and needed only where something is wrong
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            folder = Path(repo.cache.local.path)
    except NotDvcRepoError:
        folder = project / ".dvc/cache/files/md5"  # where it would be
    return folder.relative_to(project) if folder.is_relative_to(project) else folder


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
