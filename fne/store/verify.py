"""The check of artifacts: whether each is intact, fits the others, and is what the lock file records.

A fault is one line with the place, what is wrong, and the command that repairs it. Every byte is hashed, also
of files that are known to be unchanged.
"""

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fne.core.dvc import (
    PipelineOut,
    Stage,
    added_out,
    content_md5,
    locked_dependencies,
    out_of,
    pipeline_outs,
    project_path,
    recorded_stages,
    repair_advice,
    restore_advice,
)
from fne.core.errors import InputError
from fne.core.files import file_digest, files_in, missing_path
from fne.core.progress import progress
from fne.core.terminal import BYTES, printable
from fne.store.artifact import Artifact, Contents, Done, Kind, Source
from fne.store.catalog import image_root, read_images, record_of
from fne.store.images import UndecodableError, image_exists, read_image_file
from fne.store.lineage import record_faults
from fne.store.rows import STORE, WITHOUT_ROWS
from fne.store.tar_files import split_path


@dataclass(frozen=True)
class Verdict:
    """How many artifacts were checked, which artifacts of the pipeline are not here, and all faults."""

    checked: int
    absent: list[Path]
    faults: list[str]


@dataclass(frozen=True)
class ProjectArtifacts:
    """The artifacts of a project, not checked."""

    artifacts: list[Artifact]  # all of them
    files: tuple[Path, list[str]] | None  # the catalog file of image files, and its image ids
    images: tuple[Path, list[str]] | None  # the catalog file of captions, and its image ids
    captions: tuple[Path, list[str]] | None  # the catalog file of captions, and its caption ids


def kind_at(path: Path, kinds: Iterable[Kind]) -> Kind | None:
    """Return the kind of the artifact at a path: the first that recognizes it."""
    return next((each for each in kinds if each.recognizes(path)), None)


def verify_artifacts(paths: Sequence[Path], kinds: Sequence[Kind], sources: Sequence[Source] = ()) -> Verdict:
    """Check the artifacts at `paths`, or all artifacts of the pipeline that are here."""
    outs = pipeline_outs()
    if not paths and not outs:
        raise missing_path("dvc.yaml", "run this in the project's folder, or name the artifacts")
    known = list(dict.fromkeys([*outs, *filter(STORE.recognizes, locked_dependencies())]))
    here = [each for path in known if path.exists() for each in _parts(path, kinds)]
    named = (each for path in paths for each in _within(project_path(path), here, kinds))
    chosen = list(dict.fromkeys(named)) or here
    found, faults = _check_all(chosen, outs, kinds)
    present = (path for path in dict.fromkeys([*here, *chosen]) if path.exists())
    faults += _compare_all(found, outs, load_project_artifacts(present, kinds), sources)
    # What was never made, such as the outputs of a pipeline that nobody ran, is not missing.
    made = [path for path in known if path not in outs or outs[path].md5]
    return Verdict(len(found), [] if paths else [path for path in made if not path.exists()], faults)


def _check_all(
    paths: Sequence[Path], outs: Mapping[Path, PipelineOut], kinds: Sequence[Kind]
) -> tuple[dict[Path, Contents], list[str]]:
    """Return what each artifact holds, and the faults of the artifacts themselves."""
    found: dict[Path, Contents] = {}
    faults: list[str] = []
    with progress("verifying", sum(map(_size, paths)), unit=BYTES, leave=False) as shown:
        for path in paths:
            shown.rename(f"verifying {printable(str(path))}")
            out = out_of(path, outs) or added_out(path)
            kind = kind_at(path, kinds)
            if out is None and not path.exists():
                faults.append(f"{path}: no such file or folder")
            elif kind is None and path not in outs and (out is None or out.md5 is None):
                faults.append(f"{path}: not an artifact of the pipeline")
            else:
                found[path], own = _check(path, kind, out, shown.update)
                advice = f"; {repair_advice(path, out)}" if own else ""
                faults += [fault + advice for fault in own]
    return found, faults


def _compare_all(
    found: Mapping[Path, Contents],
    outs: Mapping[Path, PipelineOut],
    project: ProjectArtifacts,
    sources: Sequence[Source],
) -> Iterator[str]:
    """Yield where artifacts do not fit the lock file, the image files, the catalog or their ancestors."""
    stages = recorded_stages()
    for path, contents in found.items():
        artifact = contents.artifact
        if artifact is None:
            continue
        recorded = record_faults(artifact, stages) + source_faults(artifact, stages, sources)
        yield from (f"{fault}; run `dvc repro --force {address}`" for fault, address in recorded)
        yield from image_faults(artifact)
        # No stage makes an imported store.
        advice = (
            "run `dvc repro`" if out_of(path, outs) else "copy it again, or import it again with `fne import`"
        )
        yield from (f"{fault}; {advice}" for fault in disagreements(path, artifact, contents, project))


def load_project_artifacts(paths: Iterable[Path], kinds: Sequence[Kind]) -> ProjectArtifacts:
    """Open the artifacts at `paths`; damaged ones are left out."""
    artifacts: list[Artifact] = []
    files = images = captions = None
    for path in paths:
        kind = kind_at(path, kinds)
        try:
            contents = kind.open(path) if kind and kind.open else Contents()
        except InputError:
            continue
        artifacts += [each for each in (contents.artifact, *contents.splits) if each]
        name = contents.artifact.name if contents.artifact else None
        if name == "images":
            files = path, contents.image_ids or []
        elif name == "captions":
            images, captions = (path, contents.image_ids or []), (path, contents.caption_ids or [])
    return ProjectArtifacts(artifacts, files, images, captions)


def disagreements(path: Path, artifact: Artifact, contents: Contents, project: ProjectArtifacts) -> list[str]:
    """Return where an artifact does not fit the catalog or its ancestors, one line each."""
    # Extracted activations have the images of the catalog; imported ones may have more.
    extracted = "images" in artifact.lineage
    listed = project.files if artifact.name == "activations" and extracted else project.images
    # With `catalog.images: none` there are captions and no image files.
    if (artifact.name == "images" and not contents.image_ids) or WITHOUT_ROWS in artifact.settings:
        listed = None
    return [
        *_compare_ids(path, contents.image_ids, listed, exactly=extracted or artifact.name == "images"),
        *_compare_ids(path, contents.caption_ids, project.captions, exactly="captions" in artifact.lineage),
        *_compare_lineage(path, artifact, project.artifacts),
    ]


def image_faults(artifact: Artifact) -> list[str]:
    """Return how image files differ from the catalog; without any on this machine, none is checked."""
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


def source_faults(
    artifact: Artifact, stages: Sequence[Stage], sources: Sequence[Source]
) -> list[tuple[str, str]]:
    """Return lines about another `Source` than the lock file records, each with the stage to run again."""
    path = str(project_path(artifact.path))
    writer = next((stage for stage in stages if stage.writes(path)), None)
    source = next((each for each in sources if each.artifact == artifact.name), None)
    if writer is None or source is None:
        return []
    for values in writer.params.values():
        recorded = values.get(source.section)
        if not isinstance(recorded, dict):
            continue
        file = posixpath.normpath(posixpath.join(writer.folder, str(recorded.get(source.key))))
        # A file that has changed since does not concern the record.
        if file in writer.deps and content_md5(Path(file)) == writer.deps[file]:
            try:
                fault = source.fault(artifact, Path(file), values | recorded)
            except InputError as error:
                fault = error.message
            if fault:
                return [(f"{path} was not made as dvc.lock records: {fault}", writer.address)]
    return []


def _within(path: Path, artifacts: Sequence[Path], kinds: Sequence[Kind]) -> list[Path]:
    """Return the artifacts in a folder that is not an artifact itself, or the path as it is."""
    if not path.is_dir() or kind_at(path, kinds) or path in artifacts:
        return _parts(path, kinds)
    return [each for each in artifacts if each.is_relative_to(path)] or [path]


def _parts(path: Path, kinds: Sequence[Kind]) -> list[Path]:
    """Return the artifacts in a folder of artifacts, or the path as it is."""
    kind = kind_at(path, kinds)
    return list(files_in(path)) if path.is_dir() and kind and kind.has_parts else [path]


def _check(path: Path, kind: Kind | None, out: PipelineOut | None, done: Done) -> tuple[Contents, list[str]]:
    """Return what an artifact holds and its own faults, without advice."""
    if not path.exists():
        return Contents(), [f"{path}: no such file or folder"]
    try:
        contents = kind.check(path, done) if kind else Contents()
        return contents, [_without_advice(fault) for fault in contents.faults] or _compare_lock(path, out)
    except InputError as error:
        return Contents(), [_without_advice(error.message)]


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
) -> Iterator[str]:
    if ids is None or catalog is None:
        return
    place, wanted = catalog
    if lacking := sorted(set(wanted) - set(ids)):
        yield f"{path}: lacks {len(lacking)} of the {len(wanted)} ids of {place}, the first is {lacking[0]!r}"
    if exactly and (foreign := sorted(set(ids) - set(wanted))):
        yield f"{path}: has {len(foreign)} ids that {place} does not have, the first is {foreign[0]!r}"


def _compare_lineage(path: Path, artifact: Artifact, present: Sequence[Artifact]) -> Iterator[str]:
    for name, entry in artifact.lineage.items():
        # There may be several, such as extracted and imported activations.
        here = [each for each in present if each.name == name]
        if here and entry["digest"] not in [each.digest for each in here]:
            yield (
                f"{path} was made from {name} {entry['digest'][:12]}…, but "
                f"{here[0].path} holds {name} {here[0].digest[:12]}…"
            )


def _without_advice(message: str) -> str:
    """Remove the advice of a stage: `fne verify` looks at DVC's cache before it gives advice."""
    fault, _, advice = message.rpartition("; ")
    return fault if advice.startswith(("remove ", "run ")) else message


def _size(path: Path) -> int:
    files = files_in(path) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
