"""Whether artifacts were made with the settings and inputs that `dvc.lock` records.

DVC reads `params.yaml` and the inputs after a stage has ended. If someone changes them in that moment, the
lock file records a run that never happened, and the run cache returns its artifact to everyone who asks for
it. So the next stage, the report and `fne verify` compare the settings in an artifact with the lock file.

Only an artifact that the lock file records, with the same content, is compared: not one made by hand. Its
ancestors are compared as far as the lock file connects them: imported features have other settings.

- Settings: those of the artifact, or of the catalog's record, against the parameters in its sections, and
  against the effective settings that its pipeline's stage `check` recorded: a default may have changed.
- Keys whose values are paths: a stage depends on the file that such a key named at its start
  (`${extract.weights}` in `dvc.yaml`), so the recorded value must be a recorded dependency.
- Files: the digest that an artifact has of a file or folder against that of the dependency.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from fne.core.dvc import LOCK, Stage, bytes_md5, content_md5, project_path, recorded_stages
from fne.core.errors import InputError
from fne.core.settings import flattened
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import record_of
from fne.store.checksums import SETTINGS, parse_settings


def recorded_lineage(*artifacts: Artifact) -> Lineage:
    """Return the lineage of what is made from `artifacts`, which must be what `dvc.lock` records."""
    check_records(*artifacts)
    return merge(*artifacts)


def check_records(*artifacts: Artifact) -> None:
    """Refuse artifacts that are not what `dvc.lock` says that they are."""
    stages = recorded_stages()
    for artifact in artifacts:
        record = record_of(artifact)
        for each in [artifact, record] if record else [artifact]:
            for fault, address in record_faults(each, stages):
                raise InputError(f"{fault}; run `dvc repro --force {address}`")


def record_faults(artifact: Artifact, stages: Sequence[Stage]) -> list[tuple[str, str]]:
    """Return where lock files record other settings or inputs: lines without advice, and stages to run."""
    path = str(project_path(artifact.path))
    writer = next((stage for stage in stages if path in stage.outs), None)
    if writer is None:
        return []
    own = {"settings": artifact.settings, "sections": artifact.sections}
    made_with = [own, *(entry for name, entry in artifact.lineage.items() if name != artifact.name)]
    behind = [_with_settings(each) for each in (writer, *_ancestors(writer, stages))]
    paths = {key for stage in stages for key in stage.paths}
    places = {_absolute(path) for stage in stages for path in stage.deps}
    faults = [
        (
            f"{path} was made with {key} = {made!r}, but {source} records {recorded!r}",
            stage.address if source == LOCK else writer.address,
        )
        for stage in behind
        for key, made, recorded, source in _differences(made_with, stage, paths, places)
    ]
    faults += [
        (f"{path} was made with another {key} than {value!r}, which {LOCK} records", stage.address)
        for stage in behind
        for key, value in _other_paths(stage)
    ]
    faults += [
        (f"{path} was made from {file} {made[:12]}…, but {LOCK} records {recorded[:12]}…", writer.address)
        for file, made, recorded in _other_files(artifact, writer)
    ]
    # Hashing takes long, and there is hardly ever a reason for it.
    return faults if faults and content_md5(Path(path)) == writer.outs[path] else []


def _ancestors(stage: Stage, stages: Sequence[Stage]) -> Iterable[Stage]:
    """Return the stages whose recorded outs are recorded dependencies of a stage, directly or not."""
    found: dict[str, Stage] = {}
    waiting = [stage]
    while waiting:
        current = waiting.pop()
        for each in stages:
            if each.address not in found and each.outs.items() & current.deps.items():
                found[each.address] = each
                waiting.append(each)
    return found.values()


def _with_settings(stage: Stage) -> Stage:
    """Return a stage `check` with the effective settings that it recorded, other stages as they are."""
    file = next((Path(out) for out in stage.outs if out.endswith(SETTINGS)), None)
    try:
        content = file.read_bytes() if file else b""
        if file is None or bytes_md5(content) != stage.outs[str(file)]:
            return stage
        return replace(stage, params={str(file): dict(parse_settings(content)[0])})
    except (OSError, ValueError):  # `fne verify` says so
        return stage


def _differences(
    entries: Sequence[dict[str, Any]], stage: Stage, paths: set[str], places: set[str]
) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield the keys whose values differ: the artifact's, the recorded one, and where it is recorded.

    `paths` are the keys whose values are paths, `places` all recorded dependencies.
    """
    for entry in entries:
        # An artifact may know only the digest of what it is made from.
        settings, sections = entry.get("settings"), entry.get("sections")
        if not isinstance(settings, dict) or not settings or not isinstance(sections, dict):
            continue
        for (section, given), (file, values) in product(sections.items(), stage.params.items()):
            source = file if file.endswith(SETTINGS) else LOCK
            given = given if isinstance(given, dict) else {}
            made = flattened(settings) | given
            content = values.get(section)
            if not isinstance(content, dict):  # a single key, or None if the stage does not record it
                key = section.rpartition(".")[2]
                if content is not None and content != made.get(key, content):
                    yield section, made[key], content, source
                continue
            for key, recorded in flattened(content).items():
                # Settings have no blocks of variants that are not chosen.
                if f"{section}.{key}" in paths or key not in made or given.get(key, key) is None:
                    continue
                # `dvc.yaml` may name the dependency itself instead of its key; an artifact has its digest.
                if isinstance(recorded, str) and _absolute(recorded, stage.folder) in places:
                    continue
                if _plain(made[key]) != _plain(recorded):
                    yield f"{section}.{key}", made[key], recorded, source


def _other_paths(stage: Stage) -> Iterator[tuple[str, str]]:
    """Yield the recorded keys whose values are paths that the stage did not depend on, with these values."""
    places = {_absolute(path) for path in stage.deps}
    for key, values in product(stage.paths, stage.params.values()):
        section, _, name = key.partition(".")
        content = values.get(section)
        value = values.get(key, content.get(name) if isinstance(content, dict) else None)
        # DVC knows remote files by other digests than MD5.
        if (
            isinstance(value, str)
            and "://" not in value
            and places
            and _absolute(value, stage.folder) not in places
        ):
            yield key, value


def _absolute(path: str, folder: str = "") -> str:
    return posixpath.normpath(posixpath.join(Path.cwd().as_posix(), folder, path))


def _other_files(artifact: Artifact, writer: Stage) -> Iterator[tuple[str, str, str]]:
    """Yield the files that have another digest than the lock file records, with both digests.

    DVC leaves out what `.dvcignore` lists, so that its digest of an unchanged folder may differ from ours.
    A difference counts only if the folder as it is now has the recorded digest.
    """
    for path, made in artifact.files.items():
        recorded = writer.deps.get(path, made)
        if made != recorded and content_md5(Path(path)) == recorded:
            yield path, made, recorded


def _plain(value: Any) -> Any:
    """Return a value as it is compared: a list of one counts as its only value, as for phases."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
