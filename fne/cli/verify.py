"""`fne verify`: whether artifacts are intact and fit together, and whether a remote has everything.

A fault is one line that names the place, what is wrong, and the command that repairs it. Every byte
is hashed, whatever is known about unchanged files.
"""

import hashlib
import posixpath
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import click

from fne.cli.artifacts import CAPTIONS, FOLDER, IMAGES, KINDS, STORE, Contents, artifact_kind
from fne.core.dvc import (
    PipelineOut,
    Stage,
    added_out,
    added_paths,
    content_md5,
    is_own_object,
    locked_dependencies,
    open_repo,
    pipeline_outs,
    project_path,
    recorded_stages,
    repair_advice,
    restore_advice,
    shared_objects,
)
from fne.core.errors import InputError
from fne.core.files import file_digest, files_in, missing_path
from fne.core.options import INPUT
from fne.core.progress import progress
from fne.core.terminal import BYTES, harmless, printable, say
from fne.extraction.preprocess import INPUTS
from fne.extraction.weights import has_digest
from fne.sharing import git_hook
from fne.sharing.run_cache import RUNS, missing_entries, push_entries, restorable_results
from fne.sharing.verify_remote import (
    CACHE_DAMAGED,
    NOT_CACHED,
    Fault,
    Findings,
    ObjectStore,
    TrackedOutputs,
    cache_store,
    check_objects,
    remote_store,
    send_again,
    tracked_outputs,
)
from fne.store.artifact import Artifact
from fne.store.catalog import image_root, read_images, record_of
from fne.store.images import UndecodableError, image_exists, read_image_file
from fne.store.layout import plan_shards
from fne.store.lineage import record_faults
from fne.store.rows import WITHOUT_ROWS, Rows
from fne.store.tar_files import split_path
from fne.text.word_vectors import SOURCE, is_no_vectors

SHOWN = 20  # faults per folder: an empty remote would have a line for every image


@click.command()
@click.argument("paths", nargs=-1, type=INPUT)
@click.option("--remote", metavar="NAME", help="Check this DVC remote instead of artifacts.")
@click.option("--read", is_flag=True, help="Remote: read all contents, not only where sizes leave a doubt.")
@click.option(
    "--repair", is_flag=True, help="Remote: send again what is missing or damaged, and check again."
)
@click.option("--all-commits", is_flag=True, help="Remote: also check what all commits track.")
@click.option(
    "--rev", "revisions", metavar="REV", multiple=True, help="Remote: check only what this commit tracks."
)
@click.option("--run-cache", is_flag=True, help="Remote: also check what `dvc repro --pull` restores.")
@click.option("--install-hook", is_flag=True, help="Remote: check it before each `git push`.")
def verify(
    paths: tuple[Path, ...],
    remote: str | None,
    read: bool,
    repair: bool,
    all_commits: bool,
    revisions: tuple[str, ...],
    run_cache: bool,
    install_hook: bool,
) -> None:
    """Check artifacts completely: those at PATHS, or all of the pipeline.

    Hashes every byte. Checks shapes, ids, values, links out of files, foreign files, and whether
    the artifacts were made from each other. Every fault is a line that ends with the command
    that repairs it; the exit code is then 2.

    With --remote, check that a colleague can pull from there everything that dvc.lock and .dvc
    files record, in the workspace and in the last commit.
    """
    choices = [read, repair, all_commits, revisions, run_cache, install_hook]
    if any(choices) if remote is None else paths:
        raise click.UsageError("name either artifacts or --remote NAME; the other options go with --remote")
    if remote is not None and install_hook:
        say(f"`git push` now checks '{remote}' first; remove the hook with: {git_hook.install_hook(remote)}")
        return
    if remote is not None:
        result = verify_remote(remote, read, repair, all_commits, revisions, run_cache)
        say(result.summary)
        for fault in result.faults:
            say(harmless(fault, keep=""), err=True)
        raise click.exceptions.Exit(2 if result.faults else 0)
    verdict = verify_artifacts(paths)
    for fault in verdict.faults:
        say(harmless(fault, keep=""), err=True)
    absent = f", {len(verdict.absent)} not here (`dvc pull` fetches them)" if verdict.absent else ""
    say(f"{_count(verdict.checked, 'artifact')} verified{absent}, {_count(len(verdict.faults), 'fault')}")
    if verdict.faults:
        raise click.exceptions.Exit(2)


@dataclass(frozen=True)
class Verdict:
    """How many artifacts were checked, which artifacts of the pipeline are not here, and all faults."""

    checked: int
    absent: list[Path]
    faults: list[str]


def verify_artifacts(paths: Sequence[Path]) -> Verdict:
    """Check the artifacts at `paths`, or all artifacts of the pipeline that are here.

    Raises:
        InputError: if there is neither a path nor a pipeline.
    """
    outs = pipeline_outs()
    if not paths and not outs:
        raise missing_path("dvc.yaml", "run this in the project's folder, or name the artifacts")
    sources = [path for path in locked_dependencies() if artifact_kind(path) == STORE]
    known = list(dict.fromkeys([*outs, *sources]))
    here = [path for path in known if path.exists()]
    chosen = list(dict.fromkeys(each for path in paths for each in _within(project_path(path), here))) or here
    found: dict[Path, Contents] = {}
    faults: list[str] = []
    with progress("verifying", sum(map(_size, chosen)), unit=BYTES, leave=False) as shown:
        for path in chosen:
            shown.rename(f"verifying {printable(str(path))}")
            unknown = _unknown(path, outs)
            if unknown:
                faults.append(f"{path}: {unknown}")
                continue
            out = outs.get(path) or added_out(path)
            contents, own = _check(path, out, shown.update)
            found[path] = contents
            if own:
                advice = repair_advice(path, out)
                faults += [f"{fault}; {advice}" for fault in own]
    project = load_project_artifacts(path for path in dict.fromkeys([*known, *chosen]) if path.exists())
    stages = recorded_stages()
    for path, contents in found.items():
        if contents.artifact is not None:
            recorded = record_faults(contents.artifact, stages)
            recorded += making_faults(contents.artifact, stages)
            faults += [f"{fault}; run `dvc repro --force {address}`" for fault, address in recorded]
            faults += image_faults(contents.artifact)
        # No stage makes an imported store.
        advice = "run `dvc repro`" if path in outs else "copy it again, or import it again with `fne import`"
        faults += [f"{fault}; {advice}" for fault in disagreements(path, contents, project)]
    return Verdict(len(found), [] if paths else [path for path in known if not path.exists()], faults)


@dataclass(frozen=True)
class ProjectArtifacts:
    """The artifacts of a project, not checked.

    Attributes:
        artifacts: all of them.
        files: the catalog file of image files, and its image ids.
        images: the catalog file of captions, and its image ids.
        captions: the catalog file of captions, and its caption ids.
    """

    artifacts: list[Artifact]
    files: tuple[Path, list[str]] | None
    images: tuple[Path, list[str]] | None
    captions: tuple[Path, list[str]] | None


def load_project_artifacts(paths: Iterable[Path]) -> ProjectArtifacts:
    """Open the artifacts at `paths`; damaged ones are left out."""
    artifacts: list[Artifact] = []
    files = images = captions = None
    for path in paths:
        name = artifact_kind(path)
        kind = KINDS.get(name)
        try:
            contents = kind.open(path) if kind and kind.open else Contents()
        except InputError:
            continue
        artifacts += [each for each in (contents.artifact, *contents.splits) if each]
        if name == IMAGES:
            files = path, contents.image_ids or []
        elif name == CAPTIONS:
            images, captions = (path, contents.image_ids or []), (path, contents.caption_ids or [])
    return ProjectArtifacts(artifacts, files, images, captions)


def disagreements(path: Path, contents: Contents, project: ProjectArtifacts) -> list[str]:
    """Return where an artifact does not fit the catalog or its ancestors, one line each."""
    artifact = contents.artifact
    if artifact is None:
        return []
    # Extracted activations have the images of the catalog; imported ones may have more.
    extracted = "images" in artifact.lineage
    listed = project.files if artifact.name == "activations" and extracted else project.images
    if artifact.name == "images" and not contents.image_ids:
        listed = None  # with `catalog.images: none` there are captions and no image files
    if WITHOUT_ROWS in artifact.settings:
        listed = None
    return [
        *_compare_ids(path, contents.image_ids, listed, exactly=extracted or artifact.name == "images"),
        *_compare_ids(path, contents.caption_ids, project.captions, exactly=True),
        *_compare_lineage(path, artifact, project.artifacts),
    ]


def image_faults(artifact: Artifact) -> list[str]:
    """Return whether the image files are those that the catalog lists, as one line at most.

    A data set of which no image is on this machine is not checked.
    """
    record = record_of(artifact) if artifact.name == "images" else None
    if record is None:
        return []
    root = image_root(str(record.settings.get("root")))
    places = {root / image.path: image.sha256 for image in read_images(artifact.path)[0]}
    here = {path: sha256 for path, sha256 in places.items() if image_exists(path)}
    other = [path for path, sha256 in here.items() if _image_digest(path) != sha256]
    lacking = [path for path in places if path not in here] if here else []
    return [
        f"{artifact.path}: {len(paths)} of {len(places)} images {what}, the first is {paths[0]}; "
        f"{restore_advice(paths[0])}"
        for paths, what in ((other, "are not the listed files"), (lacking, "are missing"))
        if paths
    ]


def _image_digest(path: Path) -> str:
    """Return the digest of an image file, which may be in a tar archive."""
    if split_path(path) is None:
        return file_digest(path)
    try:
        return hashlib.sha256(read_image_file(path)).hexdigest()
    except UndecodableError:
        return ""


def making_faults(artifact: Artifact, stages: Sequence[Stage]) -> list[tuple[str, str]]:
    """Return whether an artifact was made in another way than the lock file records.

    This is about what an artifact does not hold in the form of the record: weights and vectors by their
    digests, and the number of shards.

    Returns:
        one line, without advice, and the address of the stage to run again.
    """
    path = str(project_path(artifact.path))
    writer = next((stage for stage in stages if path in stage.outs), None)
    if writer is None or artifact.name not in MAKING:
        return []
    section, key, find = MAKING[artifact.name]
    for values in writer.params.values():
        recorded = values.get(section)
        if not isinstance(recorded, dict):
            continue
        file = posixpath.normpath(posixpath.join(writer.folder, str(recorded.get(key))))
        # A file that has changed since is no concern of the record.
        if file in writer.deps and content_md5(Path(file)) == writer.deps[file]:
            try:
                fault = find(artifact, Path(file), recorded | {"source": values.get("embed.source")})
            except InputError as error:
                fault = error.message
            if fault:
                return [(f"{path} was not made as dvc.lock records: {fault}", writer.address)]
    return []


def _extraction_fault(artifact: Artifact, file: Path, recorded: Mapping[str, Any]) -> str | None:
    source, without_rows = recorded["source"], WITHOUT_ROWS in artifact.settings
    if source is not None and (Path(str(source)) != project_path(artifact.path)) != without_rows:
        return f"embed.source is not {source!r}"
    if without_rows:
        return None
    backbone, digest = artifact.settings.get("backbone"), artifact.lineage.get("weights", {}).get("digest")
    if not has_digest(file, str(backbone), str(digest)):
        return f"{file} has other weights"
    wanted = INPUTS.get(str(recorded.get("input")))  # none for `auto`
    if wanted and wanted.model_dump() != artifact.settings.get("input"):
        return f"extract.input is not {recorded['input']!r}"
    shards, rows = recorded.get("shards"), Rows.open(artifact.path)
    if isinstance(shards, int) and shards > 0 and plan_shards(rows.ids, shards) != rows.plan():
        return f"extract.shards is not {shards}"
    return None


def _vectors_fault(artifact: Artifact, file: Path, recorded: Mapping[str, Any]) -> str | None:
    digest = artifact.lineage.get(SOURCE, {}).get("digest")
    fits = digest is None if is_no_vectors(str(file)) else digest == file_digest(file)
    return None if fits else f"{file} has other vectors"


def _within(path: Path, artifacts: Sequence[Path]) -> list[Path]:
    """Return the artifacts in a folder that is no artifact itself, or the path as it is."""
    if artifact_kind(path) != FOLDER or path in artifacts:
        return [path]
    return [each for each in artifacts if each.is_relative_to(path)] or [path]


def _unknown(path: Path, outs: Mapping[Path, PipelineOut]) -> str | None:
    """Return why a path cannot be checked at all, or None."""
    if path in outs or added_out(path):
        return None
    if not path.exists():
        return "no such file or folder"
    return None if artifact_kind(path) in KINDS else "not an artifact of the pipeline"


def _check(path: Path, out: PipelineOut | None, done: Callable[[int], object]) -> tuple[Contents, list[str]]:
    """Return what an artifact holds and its own faults, without advice."""
    if not path.exists():
        return Contents(), [f"{path}: no such file or folder"]
    kind = KINDS.get(artifact_kind(path))
    try:
        contents = kind.check(path, done) if kind else Contents()
    except InputError as error:
        return Contents(), [_without_advice(error.message)]
    return contents, [_without_advice(fault) for fault in contents.faults] or _compare_lock(path, out)


def _compare_lock(path: Path, out: PipelineOut | None) -> list[str]:
    """Compare an intact artifact with the lock file: it may be an intact artifact of another run."""
    if out is None or out.md5 is None:
        return []
    found = content_md5(path)
    if found == out.md5:
        return []
    record = "dvc.lock" if out.stage else f"{path}.dvc"
    return [f"{path}: is not what {record} records: expected md5 {out.md5[:12]}…, found {found[:12]}…"]


def _compare_ids(
    path: Path, ids: Sequence[str] | None, catalog: tuple[Path, list[str]] | None, exactly: bool
) -> list[str]:
    if ids is None or catalog is None:
        return []
    place, wanted = catalog
    lacking = sorted(set(wanted) - set(ids))
    foreign = sorted(set(ids) - set(wanted)) if exactly else []
    faults = []
    if lacking:
        faults.append(
            f"{path}: lacks {len(lacking)} of the {len(wanted)} ids of {place}, the first is {lacking[0]!r}"
        )
    if foreign:
        faults.append(
            f"{path}: has {len(foreign)} ids that {place} does not have, the first is {foreign[0]!r}"
        )
    return faults


def _compare_lineage(path: Path, artifact: Artifact, present: Sequence[Artifact]) -> list[str]:
    faults = []
    for name, entry in artifact.lineage.items():
        # There may be several, such as extracted and imported activations.
        here = [each for each in present if each.name == name]
        if here and entry["digest"] not in [each.digest for each in here]:
            faults.append(
                f"{path} was made from {name} {entry['digest'][:12]}…, but "
                f"{here[0].path} holds {name} {here[0].digest[:12]}…"
            )
    return faults


def _count(number: int, what: str) -> str:
    """Return a number of things as text.

    Example:
        >>> _count(0, "fault"), _count(1, "fault"), _count(2, "fault")
        ('no faults', '1 fault', '2 faults')
    """
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _without_advice(message: str) -> str:
    """Remove the advice of a stage: `fne verify` looks at DVC's cache before it gives advice."""
    fault, _, advice = message.rpartition("; ")
    return fault if advice.startswith(("remove ", "run ")) else message


def _size(path: Path) -> int:
    files = files_in(path) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


@dataclass(frozen=True)
class RemoteVerdict:
    """What was checked on a remote, and a line for each object that a colleague could not pull."""

    summary: str
    faults: list[str]


def verify_remote(
    name: str,
    read: bool = False,
    repair: bool = False,
    all_commits: bool = False,
    revisions: Sequence[str] = (),
    run_cache: bool = False,
) -> RemoteVerdict:
    """Check that a remote has every object that the project tracks.

    Args:
        name: the name of the remote in DVC.
        read: also read all contents.
        repair: send again what is missing or damaged, and check again.
        all_commits: also check what all commits track.
        revisions: check only what these commits track, not the workspace.
        run_cache: also check the entries and results of the run cache.

    Raises:
        InputError: if there is no such remote, or if it cannot be reached.
    """
    with open_repo() as repo:
        cache, remote = cache_store(repo), remote_store(repo, name)
        tracked = tracked_outputs(repo, name, revisions, all_commits)
        for output in restorable_results(repo, cache) if run_cache else []:
            tracked.add(output)
        start = time.perf_counter()
        found = check_objects(tracked.outputs.values(), remote, cache, read)
        entries = missing_entries(repo, name) if run_cache else []
        unsent: dict[str, str] = {}
        sent = ""
        if repair and (found.faults or entries):
            unsent = send_again(found.faults, cache, remote)
            if entries:
                push_entries(repo, name)
            sent = f"sent {len({fault.oid for fault in found.faults}) - len(unsent) + len(entries)} again\n"
            found = check_objects(tracked.outputs.values(), remote, cache, read)
            entries = missing_entries(repo, name) if run_cache else []
        seconds = time.perf_counter() - start
    faults = [*_fault_lines(found.faults, unsent, name), *_entry_lines(entries, name)]
    faults += [f"{path}: dvc.lock has no digest of it; fix: dvc repro" for path in tracked.without_digest]
    return RemoteVerdict(sent + _summary(remote, tracked, found, seconds), faults)


def _summary(remote: ObjectStore, tracked: TrackedOutputs, found: Findings, seconds: float) -> str:
    checked = len(found.paths)
    bad = len({fault.oid for fault in found.faults})
    lines = [
        f"{remote.name} ({remote.url}): {checked} objects, {found.size / 1e6:,.1f} MB, "
        f"{checked - bad} intact, {found.read} of them read; "
        f"{seconds:.1f} s, {checked / max(seconds, 1e-9):,.0f} objects/s"
    ]
    if tracked.imported:
        lines.append(
            f"not checked, because other repositories have it: {', '.join(sorted(tracked.imported))}"
        )
    lines += [f"not checked, because DVC cannot read it: commit {each}" for each in tracked.unreadable]
    return "\n".join(lines)


def _fault_lines(faults: Sequence[Fault], unsent: Mapping[str, str], name: str) -> list[str]:
    lines = []
    ordered = sorted(faults, key=lambda fault: (_folder(fault), fault.path))
    for folder, group in groupby(ordered, key=_folder):
        alike = list(group)
        lines += [_line(fault, unsent.get(fault.oid), name) for fault in alike[:SHOWN]]
        if len(alike) > SHOWN:
            lines.append(f"{folder}: and {len(alike) - SHOWN} more objects")
    return lines


def _folder(fault: Fault) -> str:
    return str(PurePosixPath(fault.path).parent)


def _line(fault: Fault, unsent: str | None, name: str) -> str:
    command = f"fne verify --remote {shlex.quote(name)} --repair"
    if unsent is None:
        advice = f"fix: {command}"
    elif unsent == NOT_CACHED:
        advice = f"{unsent}; fix, on the machine that made it or after `dvc repro`: {command}"
    else:
        cached, path = Path(unsent.removesuffix(CACHE_DAMAGED)), shlex.quote(fault.path)
        own = is_own_object(cached)
        added = added_paths(Path(fault.path))
        if added:  # by the user, whose file may be the only intact copy
            remove = f"rm -rf {shlex.quote(str(cached))} && " if own else ""
            again = f"if {path} is intact: {remove}dvc add {shlex.quote(str(added[0]))}"
        else:
            removed = shlex.join([str(cached), fault.path] if own else [fault.path])
            again = f"rm -rf {removed} && dvc repro"
        shared = "" if own else f": {shared_objects([cached])}"
        advice = f"{unsent}{shared}; {'fix' if own else 'then'}{', ' if added else ': '}{again} && {command}"
    return f"{fault.path} ({fault.oid}) {fault.what}; {advice}"


def _entry_lines(entries: Sequence[str], name: str) -> list[str]:
    command = f"fne verify --remote {shlex.quote(name)} --run-cache --repair"
    shown = [
        f"{RUNS}/{entry}: this entry of the run cache is missing; fix: {command}" for entry in entries[:SHOWN]
    ]
    return shown + [f"{RUNS}: and {len(entries) - SHOWN} more entries"] * (len(entries) > SHOWN)


# The section and the key that name a file which is no artifact, and what finds out whether it was used.
MAKING: dict[str, tuple[str, str, Callable[[Artifact, Path, Mapping[str, Any]], str | None]]] = {
    "activations": ("extract", "weights", _extraction_fault),
    "word_vectors": ("tokenize", "vectors", _vectors_fault),
}
