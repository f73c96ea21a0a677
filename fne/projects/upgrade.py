"""The move of a project to the code that is installed: digests, pipelines, what follows for results."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fne.core.code import (
    CODE,
    DIGITS,
    SECTION,
    code_digest,
    installed_version,
    read_code,
    shipped_pipelines,
)
from fne.core.dvc import PIPELINE, PIPELINES, pipeline_files
from fne.core.errors import InputError
from fne.core.files import text_digest, write_text
from fne.core.settings import flattened, load_params, read_yaml
from fne.core.terminal import printable
from fne.experiments import effective_settings
from fne.experiments.effective_settings import settings_file, settings_of
from fne.projects.template import (
    DEMO,
    PARAMS,
    WRITTEN,
    code_file,
    kept_versions,
    pipeline,
    written_digests,
)
from fne.store.checksums import DEFAULTS, parse_metrics

COMMAND = re.compile(r"python -m fne\.stages\.(\w+)")
MISSING = "no such setting"


@dataclass
class Upgrade:
    """What an upgrade changes."""

    before: str  # the version of fne that the project had
    stages: list[str]  # addresses of the stages that `dvc repro` runs again
    unchanged: int  # the number of the other stages
    reused: list[str] = field(default_factory=list)  # what the scratch folder keeps and is used again
    repeated: list[str] = field(default_factory=list)  # what it keeps for the earlier code only
    settings: list[str] = field(default_factory=list)  # lines about settings with another default
    replaced: list[str] = field(default_factory=list)  # pipeline files
    beside: list[str] = field(default_factory=list)  # new texts of pipeline files that the user has changed


def upgrade_project(folder: Path) -> Upgrade:
    """Write the digests and the pipelines of the installed code, and return what has changed."""
    recorded = _read(folder)
    written = {str(path): str(digest) for path, digest in (recorded.get(WRITTEN) or {}).items()}
    texts = _new_pipelines(folder, written)
    before = {stage: str(digest) for stage, digest in (recorded.get(SECTION) or {}).items()}
    # A stage of the pipeline file as it is now may be one that this version does not have.
    stages = _stages(folder)
    again = [each for each, name in stages.items() if before.get(name) != _digest(name)]
    found = Upgrade(str(recorded.get("fne")), again, len(stages) - len(again))
    found.settings = _changed_defaults(folder)
    kept = recorded.get("kept") or {}
    for what, version in kept_versions().items():
        (found.reused if str(kept.get(what)) == version.strip("'") else found.repeated).append(what)
    for path, text in texts.items():
        now = (folder / path).read_text(encoding="utf-8")
        if now == text:
            continue
        is_own = text_digest(now)[:DIGITS] == written.get(path)
        if not is_own and text_digest(text)[:DIGITS] == written.get(path):
            continue  # the user has changed it, and the new version has not
        target = path if is_own else f"{path}.new"
        write_text(folder / target, text)
        (found.replaced if is_own else found.beside).append(target)
    write_text(folder / CODE, code_file(written_digests(texts)))
    return found


def _read(folder: Path) -> Mapping[str, Any]:
    """Return what the project records of its code, which may be damaged."""
    path = folder / CODE
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; run this in a project that `fne init` started. A clone of the repository "
            "has its own code: there `git pull` and `dvc repro` are enough"
        )
    with suppress(InputError):
        read_code(folder)
        return read_yaml(path)
    return {"fne": "unknown"}


def _new_pipelines(folder: Path, written: Mapping[str, str]) -> dict[str, str]:
    """Return the pipeline files of the project as this version writes them, without those of the user."""
    here = [path for path in pipeline_files(folder) if (folder / path).is_file()]
    with_demo = f"{PIPELINES}/{DEMO}/{PIPELINE}" in {*here, *written}
    names = {path: "" if path == PIPELINE else path.split("/")[1] for path in here}
    return {path: pipeline(name, with_demo) for path, name in names.items() if name in shipped_pipelines()}


def _stages(folder: Path) -> dict[str, str]:
    """Return the module of each stage of the project by its address, as `dvc repro` takes it."""
    found = {}
    for path in pipeline_files(folder):
        stages = read_yaml(folder / path).get("stages") if (folder / path).is_file() else None
        for name, block in stages.items() if isinstance(stages, dict) else []:
            command = COMMAND.search(str(block.get("cmd"))) if isinstance(block, dict) else None
            if command:
                found[name if "/" not in path else f"{path}:{name}"] = command[1]
    return found


def _digest(stage: str) -> str | None:
    try:
        return code_digest(stage)
    except KeyError:
        return None


def _changed_defaults(folder: Path) -> list[str]:
    """Compare the defaults with those of the last results, which are among their effective settings."""
    try:
        now = {
            f"{section}.{key}": value
            for section, keys in settings_of(load_params(folder / PARAMS), PARAMS).items()
            for key, value in flattened(keys).items()
        }
    except InputError as error:
        return [error.message]
    lines = []
    for name in effective_settings.PIPELINES:
        path = folder / settings_file(name)
        try:
            defaults = parse_metrics(path.read_bytes()).get(DEFAULTS) or {}
        except (OSError, ValueError):
            continue
        for key, before in defaults.items():
            after = now.get(key, MISSING)
            if after != before:
                keep = (
                    ""
                    if after is MISSING
                    else f"; to keep it: dvc exp run -S ++{key}={printable(str(before))}"
                )
                lines.append(f"{key}: {before} is now {after}{keep}")
    return lines


def told(found: Upgrade) -> list[str]:
    """Return what an upgrade changed, as lines."""
    lines = [f"{CODE}: from fne {found.before} to {installed_version()}"]
    if found.stages:
        lines.append(f"  run again   {', '.join(found.stages)}; and stages whose inputs change then")
    lines.append(f"  unchanged   the code of {found.unchanged} stages")
    if found.reused:
        lines.append(f"  reused      finished {', '.join(found.reused)} in the scratch folder")
    if found.repeated:
        lines.append(f"  repeated    {', '.join(found.repeated)}: this version computes other results")
    lines += [f"  default     {each}" for each in found.settings]
    lines += [f"  replaced    {path}" for path in found.replaced]
    lines += [
        f"  changed     you have edited {path[:-4]}; take over what is new in {path}" for path in found.beside
    ]
    return lines
