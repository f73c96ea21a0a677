"""The one adapter to DVC: its project, its pipeline and lock files, its cache.

A project has a pipeline file `dvc.yaml` in its root and may have more of them in `pipelines/NAME/`, each with
a lock file beside it. All paths are relative to the project's root, whatever folder (`wdir`) a stage runs in.
A stage is named by its address, as `dvc repro` takes it: `extract` in the root's file,
`pipelines/demo/dvc.yaml:render` in another one. What DVC would not have written in these files is an
`InputError`.
"""

import hashlib
import json
import posixpath
import re
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from fne.core.errors import InputError
from fne.core.files import files_in, read_bytes, readable_read_errors
from fne.core.settings import load_params, parse_yaml
from fne.core.stat_cache import VerifiedFiles, file_state

PIPELINE, LOCK, PIPELINES = "dvc.yaml", "dvc.lock", "pipelines"
OUTS = ("outs", "metrics", "plots")
# Entries of a lock file that have another digest than MD5, or one for each file of a folder.
OTHER_DIGESTS = ("etag", "checksum", "files", "ds")
# The constant outputs of stages that only check. What such a stage read last need not be what results
# were made with.
CHECKED = "checked"
MAX_PATH, MAX_NAME = 4000, 255  # characters of a path, and of each part of it
SHOWN = 3  # damaged objects that are named
MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")
TEMPLATE = re.compile(r"\$\{([\w.]+)\}")
NO_RECORDS = VerifiedFiles(None)

# Returns the content of a file of the project by its path, or None if there is no such file.
Read = Callable[[str], bytes | None]


class NoProjectError(InputError):
    """A folder does not belong to a DVC project."""


class DvcError(Exception):
    """An exception of DVC, with its message in one line."""


@dataclass(frozen=True)
class Stage:
    """A stage: what its pipeline file declares, and what its lock file records of the last run."""

    address: str
    # All outs, and whether DVC caches each; Git keeps the others.
    declared: dict[str, bool] = field(default_factory=dict)
    # The MD5 of each dependency at the last run, by path; none for a stage that only checks.
    deps: dict[str, str] = field(default_factory=dict)
    outs: dict[str, str] = field(default_factory=dict)  # the MD5 of each out at the last run, by path
    # The parameters of the last run: a mapping from keys to values for each parameter file; none for a stage
    # that only checks.
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    folder: str = "."  # the folder that it runs in, which paths among its parameters start from
    # The parameters whose values are dependencies: `extract.weights` for `${extract.weights}`.
    paths: tuple[str, ...] = ()

    def writes(self, path: str) -> bool:
        """Return whether a path is a recorded out, or below one."""
        return any(str(each) in self.outs for each in (PurePosixPath(path), *PurePosixPath(path).parents))

    def recorded_md5(self, path: str) -> str | None:
        """Return the MD5 of an out, or of a file in one; None if the cache does not know what is in it."""
        return _file_digest_in(self.outs, path)


@dataclass(frozen=True)
class PipelineOut:
    """Something that DVC tracks."""

    path: Path
    stage: str | None  # the address of the stage that writes it; None for what was added or imported
    md5: str | None  # what the lock file or the `.dvc` file records; None before the first run
    cached: bool  # whether it is in DVC's cache, and not in Git


@contextmanager
def open_repo(folder: Path | None = None) -> Iterator[Any]:
    """Open the DVC project that a folder belongs to as a `dvc.repo.Repo`, or raise `NoProjectError`."""
    from dvc.config import ConfigError  # dvc: slow to import
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo
    from dvc.scm import SCMError

    place = folder or Path.cwd()
    try:
        repo = Repo(str(place))
    except NotDvcRepoError:
        raise NoProjectError(f"{place}: not a DVC project; run this in the project's folder") from None
    except SCMError:
        raise InputError(
            f"{place}: not in a Git repository; run `git init`, or `dvc config core.no_scm true`"
        ) from None
    except sqlite3.Error as error:
        raise InputError(
            f"{place}: DVC cannot use its own database ({error}); free some space and run again"
        ) from None
    except ConfigError as error:
        raise InputError(
            f"{place}: DVC's configuration is broken: {one_line(error)}; "
            "see `dvc config --list --show-origin`"
        ) from None
    with repo:
        yield repo


@contextmanager
def dvc_errors(*others: type[Exception]) -> Iterator[None]:
    """Turn exceptions of DVC and its Git library, and others, into a `DvcError`."""
    from dvc.exceptions import DvcException  # dvc: slow to import
    from scmrepo.exceptions import SCMError

    try:
        yield
    except (DvcException, SCMError, *others) as error:
        raise DvcError(one_line(error)) from None


def one_line(error: Exception) -> str:
    """Return the message of an exception of DVC in one line that is not too long."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def pipeline_files(folder: Path = Path()) -> list[str]:
    """Return the pipeline files of the project in `folder`: the root's, then those of `pipelines/`."""
    below = sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"{PIPELINES}/*/{PIPELINE}"))
    return [PIPELINE, *below]


def read_stages(pipelines: Iterable[str], read: Read, place: str = "") -> list[Stage]:
    """Return the stages of pipeline files, with what their lock files record; `place` is for messages."""
    stages = []
    for pipeline in pipelines:
        lock = posixpath.join(posixpath.dirname(pipeline), LOCK)
        declared = _parse(read(pipeline), place + pipeline)
        recorded = _parse(read(lock), place + lock)
        for name in dict.fromkeys([*declared, *recorded]):
            # A stage with `foreach` or `matrix` is declared once, and recorded once for each item.
            block = declared.get(name) or declared.get(name.partition("@")[0]) or {}
            base = posixpath.join(posixpath.dirname(pipeline), _working_folder(block))
            stages.append(_stage(name, pipeline, base, block, recorded.get(name, {}), place))
    return stages


def pipeline_outs(folder: Path = Path()) -> dict[Path, PipelineOut]:
    """Return everything that the stages of the project in `folder` write, in their order."""
    return {
        Path(path): PipelineOut(Path(path), stage.address, stage.outs.get(path), cached)
        for stage in _stages_here(folder)
        for path, cached in stage.declared.items()
    }


def out_of(path: Path, outs: Mapping[Path, PipelineOut]) -> PipelineOut | None:
    """Return the out that a path is, or a file of an out as an out of its own; None if it is neither."""
    folder = next((each for each in path.parents if each in outs), None)
    if path in outs or folder is None:
        return outs.get(path)
    out = outs[folder]
    md5 = _file_digest_in({str(folder): out.md5} if out.md5 else {}, path.as_posix())
    return replace(out, path=path, md5=md5)


def locked_dependencies() -> list[Path]:
    """Return the dependencies that the lock files of this folder's project record."""
    return [Path(path) for stage in _stages_here() for path in stage.deps]


def recorded_stages() -> list[Stage]:
    """Return the stages of this folder's project; none if it has no lock file."""
    return _stages_here() if Path(LOCK).is_file() else []


def last_run(out: Path) -> Stage:
    """Return the stage of this folder's project whose last run wrote `out`, by the lock files."""
    for stage in _stages_here():
        if str(out) in stage.outs:
            return stage
    raise InputError(f"{out}: no lock file records it; run `dvc repro`")


def repro_command(out: Path, otherwise: str = "") -> str:
    """Return the stage of this folder's project that writes `out`, as `dvc repro` takes it.

    `otherwise` is returned for what no stage writes.
    """
    known = pipeline_outs().get(project_path(out))
    return known.stage or otherwise if known else otherwise


def split_sweeps(overrides: Mapping[str, Sequence[str]]) -> list[dict[str, list[str]]]:
    """Return the overrides of each combination that values such as `-S train.margin=0.1,0.2` stand for.

    Overrides, and those of a combination, are given by the parameter file that they change.
    """
    from dvc.utils.hydra import get_hydra_sweeps  # dvc: slow to import
    from hydra.errors import HydraException

    with dvc_errors(HydraException):
        found: list[dict[str, list[str]]] = get_hydra_sweeps(
            {file: list(values) for file, values in overrides.items()}
        )
    return found


def apply_overrides(file: Path, overrides: Sequence[str]) -> None:
    """Change a parameter file as `dvc exp run -S` does; `DvcError` if an override does not fit the file."""
    from dvc.utils import hydra  # dvc: slow to import
    from hydra.errors import HydraException

    with dvc_errors(HydraException):
        hydra.apply_overrides(str(file), list(overrides))


def has_git(repo: Any) -> bool:
    """Return whether an open project is in a Git repository."""
    from dvc.scm import NoSCM  # dvc: slow to import

    return not isinstance(repo.scm, NoSCM)


def experiment_commits(repo: Any) -> list[tuple[str, str, str]]:
    """Return the name, the commit it started from and the commit of each experiment, sorted."""
    from dvc.repo.experiments.utils import exp_refs  # dvc: slow to import

    # `experiments.ls` would wait for a running pipeline.
    return sorted((each.name, each.baseline_sha, repo.scm.get_ref(str(each))) for each in exp_refs(repo.scm))


def revision_files(repo: Any, revision: str) -> Any | None:
    """Return the file system of a Git revision, or None if there is no such revision."""
    from dvc.scm import RevError, resolve_rev  # dvc: slow to import

    try:
        return repo.scm.get_fs(resolve_rev(repo.scm, revision))
    except RevError:
        return None


def link_function(kind: str) -> Callable[[str, str], None]:
    """Return the function with which DVC makes links of a kind, such as `hardlink`."""
    from dvc_objects.fs import system  # dvc: slow to import

    make: Callable[[str, str], None] = getattr(system, kind)
    return make


def copy_objects(oids: Sequence[str], source: Any, target: Any, title: str) -> None:
    """Copy objects of one store of DVC into another, also those that it seems to have, and show a bar."""
    from dvc.fs.callbacks import TqdmCallback  # dvc: slow to import

    with TqdmCallback(desc=title, unit="file") as shown:
        paths = [source.oid_to_path(oid) for oid in oids]
        target.add(paths, source.fs, list(oids), check_exists=False, callback=shown)


def default_remote() -> str | None:
    """Return the name of the remote that `dvc fetch` uses, if there is one."""
    with open_repo() as repo:
        name: str | None = repo.config.get("core", {}).get("remote")
        return name


def added_out(path: Path) -> PipelineOut | None:
    """Return what `dvc add` or `dvc import` put at `path`, or None if it came in another way."""
    file = path.with_name(f"{path.name}.dvc")
    if not file.is_file():
        return None
    # In a `.dvc` file, paths start at its own folder.
    digests = _digests(load_params(file).get("outs"), "", str(file), _restore(file))
    return PipelineOut(path, None, digests.get(path.name), cached=True)


def added_path(path: Path) -> Path | None:
    """Return the path, or the folder that it is in, that was added to DVC by hand."""
    named = [each for each in (path, *path.parents) if each.name]
    return next((each for each in named if each.with_name(f"{each.name}.dvc").is_file()), None)


def tracked_path(path: Path, root: Path) -> Path | None:
    """Return what DVC tracks as a whole of the project in `root`: a path, or the folder it is in, or None."""
    added = added_path(path)
    if added and added.is_relative_to(root):
        return added
    try:
        # What was recorded does not matter here.
        stages = read_stages(pipeline_files(root), lambda name: _read_file(root, name, skip=LOCK))
    except InputError:
        return None
    outs = {(root / out).resolve() for stage in stages for out in stage.declared}
    return next((each for each in (path, *path.parents) if each in outs), None)


def restore_advice(file: Path) -> str:
    """Return what to do about an image that is damaged, or another one than the catalog lists.

    A damaged copy in DVC's cache is checked out with a clean status, so that `dvc repro` does nothing.
    """
    root = Path.cwd().resolve()
    # The file itself may be a link into the cache.
    tracked = tracked_path(file.parent.resolve() / file.name, root)
    restore = (
        f"run `fne verify {shlex.quote(str(tracked.relative_to(root)))}` to see how to restore it"
        if tracked
        else "restore the file"
    )
    return f"{restore}; if the change is meant, run `dvc repro --force catalog`"


def project_path(path: Path) -> Path:
    """Return a path as pipeline files have it, however it was typed, if it is below the current folder."""
    # The last part may be a link into the cache, which is not followed.
    place = path.parent.resolve() / path.name
    return place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else path


def content_md5(path: Path, records: VerifiedFiles = NO_RECORDS) -> str:
    """Return the digest by which DVC knows a file or a folder; files of `records` are not read again."""
    if path.is_file():
        return _file_md5(path, records)
    files = {str(each.relative_to(path)): each for each in files_in(path)} if path.is_dir() else {}
    listing = [{"md5": _file_md5(files[name], records), "relpath": name} for name in sorted(files)]
    return bytes_md5(json.dumps(listing, sort_keys=True).encode()) + ".dir"


def _file_md5(path: Path, records: VerifiedFiles) -> str:
    state = file_state(path)
    known = records.lookup(state, "md5")
    if known is None:
        with readable_read_errors(path), path.open("rb") as file:
            known = hashlib.file_digest(file, "md5").hexdigest()
        records.record(state, "md5", known)
    return known


def bytes_md5(content: bytes) -> str:
    """Return the MD5 of some bytes: the name of their object, which protects from accidents only."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def cache_folder(folder: Path | None = None) -> Path:
    """Return the folder of DVC's cache with a project's objects; outside a project, where it would be."""
    try:
        with open_repo(folder) as repo:
            return Path(repo.cache.local.path)
    except NoProjectError:
        return (folder or Path.cwd()) / ".dvc/cache/files/md5"


def cache_object(cache: Path, md5: str) -> Path:
    """Return where a cache keeps the object with a digest."""
    return cache / md5[:2] / md5[2:]


def read_listing(cache: Path, md5: str) -> dict[str, str]:
    """Return what `parse_listing` returns for an object of a cache, after checking its MD5."""
    place = cache_object(cache, md5)
    content = read_bytes(place)
    if bytes_md5(content) != md5.removesuffix(".dir"):
        raise InputError(f"{place}: damaged: its content has another md5 than its name")
    return parse_listing(content, str(place))


def parse_listing(content: bytes, place: str) -> dict[str, str]:
    """Return the MD5 of each file of a tracked folder by its path below that folder."""
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{place}: not a listing of a folder; run `dvc pull` to fetch it again") from None
    listing = _digests(entries, "", place, "run `dvc pull` to fetch it again", key="relpath")
    for path in listing:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\0" in path:
            raise InputError(f"{place}: {path!r} leads out of the folder; such listings are refused")
    return listing


def repair_advice(path: Path, out: PipelineOut | None) -> str:
    """Return which command repairs a damaged artifact.

    What a stage writes can be removed. Added data may have changed on purpose, so it is moved aside.
    """
    if out is None:
        return "no stage writes it; copy it again from where it came, or import it again with `fne import`"
    name, stage = shlex.quote(str(path)), shlex.quote(out.stage or "")
    if out.md5 is None:
        return f"remove it and run `dvc repro {stage}`"
    if path.exists() and _has_content(path, out.md5):
        if out.stage is None:
            file = shlex.quote(f"{path}.dvc")
            return f"the imported copy is itself damaged; fix it upstream, then run `dvc update {file}`"
        return f"its stage wrote it so; run `dvc repro --force {stage}`"
    repro = f", or `dvc repro {stage}`" if out.stage else ""
    if not out.cached:
        return f"remove it and run `git checkout {name}`{repro}"
    try:
        damaged, absent = _cache_faults(out.md5)
    except InputError as error:
        return f"its copy in the cache cannot be checked: {error.message}"
    aside = shlex.join(["mv", str(path), f"{path}.before"])
    if damaged:
        instead = f"; if no remote has it, run `dvc repro {stage}` instead of `dvc pull`" if out.stage else ""
        fetch = f"dvc pull {name}`{instead}"
        if not is_own_object(damaged[0]):
            clear = f"rm -rf {name}" if out.stage else aside
            shared = shared_objects(damaged)
            return f"its copy in the cache is damaged too: {shared}; then run `{clear} && {fetch}"
        removed = shlex.join([*map(str, damaged), *([str(path)] if out.stage else [])])
        clear = f"rm -rf {removed}" if out.stage else f"rm -rf {removed} && {aside}"
        return f"its copy in the cache is damaged too; fix both: `{clear} && {fetch}"
    fetch = f"dvc {'pull' if absent else 'checkout'} {name}"
    if out.stage:
        return f"remove it and run `{fetch}`{repro if absent else ''}"
    return f"it is not removed, because the change may be yours; run `{aside} && {fetch}`"


def _has_content(path: Path, md5: str) -> bool:
    try:
        return content_md5(path) == md5
    except InputError:  # it cannot be read
        return False


def is_own_object(cached: Path) -> bool:
    """Return whether a cache object is in the folder of this project, where no other project looks for it."""
    return cached.resolve().is_relative_to(Path.cwd().resolve())


def shared_objects(damaged: Sequence[Path]) -> str:
    """Return the advice for damaged objects in a cache outside the project, which others may use."""
    more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
    shown = ", ".join(map(str, damaged[:SHOWN])) + more
    return f"{shown}; other projects may use that cache, so ask its owner to restore or remove these objects"


def _stages_here(folder: Path = Path()) -> list[Stage]:
    return read_stages(pipeline_files(folder), lambda name: _read_file(folder, name))


def _read_file(folder: Path, name: str, skip: str = "") -> bytes | None:
    path = folder / name
    return read_bytes(path) if path.is_file() and path.name != skip else None


@lru_cache(maxsize=32)  # by content: a study reads the same lock files before every training
def _parse(content: bytes | None, place: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the blocks of a pipeline or lock file by the names of their stages."""
    if not content:
        return {}
    stages = parse_yaml(content, place, aliases=not place.endswith(LOCK)).get("stages") or {}
    if not _is_mapping_of_mappings(stages):
        raise InputError(f"{place}: 'stages' is not a mapping of stages; fix the file")
    return MappingProxyType(stages)


def _working_folder(block: Mapping[str, Any]) -> str:
    inner = block.get("do")
    folder = (inner if isinstance(inner, dict) else block).get("wdir", ".")
    # A template, which only DVC can fill in.
    return folder if isinstance(folder, str) and "${" not in folder else "."


def _stage(
    name: str, pipeline: str, base: str, declared: Mapping[str, Any], recorded: Mapping[str, Any], place: str
) -> Stage:
    address = name if pipeline == PIPELINE else f"{pipeline}:{name}"
    lock = posixpath.join(posixpath.dirname(pipeline), LOCK)
    in_lock, advice = f"{place}{lock}: stage '{name}'", _restore(lock)
    params = recorded.get("params") or {}
    if not _is_mapping_of_mappings(params):
        raise InputError(f"{in_lock}: 'params' is not a mapping of parameter files; {advice}")
    outs = _digests(recorded.get("outs"), base, in_lock, advice)
    stage = Stage(
        address,
        dict(_declared(declared, base, f"{place}{pipeline}: stage '{name}'")),
        _digests(recorded.get("deps"), base, in_lock, advice),
        outs,
        {_joined(base, file): dict(values) for file, values in params.items()},
        base,
        tuple(_templates(declared.get("deps"))),
    )
    only_checks = any(posixpath.dirname(path) == CHECKED for path in outs)
    return replace(stage, deps={}, params={}) if only_checks else stage


def _declared(block: Mapping[str, Any], base: str, place: str) -> Iterator[tuple[str, bool]]:
    """Yield the outs of a stage: paths, or paths with options such as `- metrics.json: {cache: false}`."""
    for key in OUTS:
        entries = block.get(key) or []
        if not isinstance(entries, list):
            raise InputError(f"{place}: '{key}' is not a list of paths; fix the file")
        for entry in entries:
            for path, option in entry.items() if isinstance(entry, dict) else [(entry, None)]:
                if not isinstance(path, str):
                    raise InputError(f"{place}: '{key}' holds {path!r}, which is not a path; fix the file")
                yield _joined(base, path), (option if isinstance(option, dict) else {}).get("cache", True)


def _templates(deps: Any) -> list[str]:
    """Return the keys of parameters that stand for a dependency, such as `${catalog.root}`."""
    named = [each for each in deps if isinstance(each, str)] if isinstance(deps, list) else []
    return [found[1] for each in named if (found := TEMPLATE.fullmatch(each))]


def _digests(entries: Any, base: str, place: str, advice: str, key: str = "path") -> dict[str, str]:
    """Return the MD5 of each entry by its path; entries with another kind of digest are left out."""
    if entries is None:
        return {}
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{place}: expected a list of files with digests; {advice}")
    found = {}
    for entry in entries:
        path, md5 = entry.get(key), entry.get("md5")
        if not isinstance(path, str):
            raise InputError(f"{place}: an entry has no {key}; {advice}")
        if len(path) > MAX_PATH or max(map(len, path.split("/"))) > MAX_NAME:
            raise InputError(f"{place}: '{path[:40]}…' is longer than a path can be; {advice}")
        if md5 is None and any(name in entry for name in OTHER_DIGESTS):
            continue
        if not isinstance(md5, str) or not MD5.fullmatch(md5):
            fault = "has no md5" if md5 is None else f"has the md5 {str(md5)[:40]!r}, which is not a digest"
            raise InputError(f"{place}: '{path}' {fault}; {advice}")
        found[_joined(base, path)] = md5
    return found


def _file_digest_in(outs: Mapping[str, str], path: str) -> str | None:
    """Return the MD5 of one of some outs, or of a file in one of them by its listing in the cache."""
    folder = next((str(each) for each in PurePosixPath(path).parents if str(each) in outs), None)
    if path in outs or folder is None:
        return outs.get(path)
    try:
        return read_listing(_cache_here(Path.cwd()), outs[folder]).get(posixpath.relpath(path, folder))
    except InputError:
        return None


def _joined(base: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(base, path))


def _is_mapping_of_mappings(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(each, dict) for key, each in value.items()
    )


def _restore(file: Path | str) -> str:
    return f"restore the file with `git checkout {file}`"


def _cache_faults(md5: str) -> tuple[list[Path], list[Path]]:
    """Return the damaged and the missing cache objects of an out."""
    cache = _cache_here(Path.cwd())
    objects = [cache_object(cache, md5)]
    if md5.endswith(".dir") and _is_intact(objects[0]):
        objects += [cache_object(cache, each) for each in read_listing(cache, md5).values()]
    there = [each for each in objects if each.exists()]
    return [each for each in there if not _is_intact(each)], [each for each in objects if each not in there]


def _is_intact(cached: Path) -> bool:
    if not cached.exists():
        return False
    return cached.parent.name + cached.name.removesuffix(".dir") == content_md5(cached)


@lru_cache
def _cache_here(project: Path) -> Path:
    folder = cache_folder(project)
    return folder.relative_to(project) if folder.is_relative_to(project) else folder
