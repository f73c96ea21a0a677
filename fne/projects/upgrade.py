"""The move of a project to the code that is installed: digests, pipelines, what follows for results."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fne.core.code import (
    CODE,
    DIGITS,
    SECTION,
    code_digest,
    code_of_stages,
    installed_version,
    read_code,
    shipped_pipelines,
)
from fne.core.dvc import PIPELINE, PIPELINES, pipeline_files
from fne.core.errors import InputError
from fne.core.files import text_digest, write_text
from fne.core.settings import flattened, load_params, load_runtime, read_yaml
from fne.experiments import effective_settings
from fne.experiments.effective_settings import restore_settings, settings_file, settings_of
from fne.projects.template import DEMO, PARAMS, WRITTEN, code_file, kept_versions, pipeline, written_digests
from fne.store.checksums import DEFAULTS, parse_metrics

COMMAND = re.compile(r"python -m fne\.stages\.(\w+)")


def upgrade_project(folder: Path) -> list[str]:
    """Write the digests and the pipelines of the installed code, and return what changes, as lines."""
    recorded = _read(folder)
    before, kept, written = (
        {str(key): str(value) for key, value in (recorded.get(part) or {}).items()}
        for part in (SECTION, "kept", WRITTEN)
    )
    stages, versions = _stages(folder), kept_versions()
    again = [
        address
        for address, name in stages.items()
        if name not in code_of_stages() or before.get(name) != code_digest(name)
    ]
    reused = [what for what, version in versions.items() if kept.get(what) == version]
    repeated = [what for what in versions if what not in reused]
    texts = _new_pipelines(folder, written)
    lines = [
        f"{CODE}: from fne {recorded.get('fne')} to {installed_version()}",
        *[f"  run again   {', '.join(again)}; and stages whose inputs change then"] * bool(again),
        f"  unchanged   the code of {len(stages) - len(again)} stages",
        *[f"  reused      finished {', '.join(reused)} in the scratch folder"] * bool(reused),
        *[f"  repeated    {', '.join(repeated)}: this version computes other results"] * bool(repeated),
        *(f"  default     {each}" for each in _changed_defaults(folder)),
        *(_replaced(folder, path, text, written.get(path)) for path, text in texts.items()),
    ]
    write_text(folder / CODE, code_file(written_digests(texts)))
    return [line for line in lines if line]


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


def _replaced(folder: Path, path: str, text: str, written: str | None) -> str:
    """Write a new text of a pipeline file, beside it if the user has edited it; return a line about it."""
    now = (folder / path).read_text(encoding="utf-8")
    # Nothing is new, in the file or in what was written for it.
    if now == text or text_digest(text)[:DIGITS] == written:
        return ""
    if text_digest(now)[:DIGITS] == written:
        write_text(folder / path, text)
        return f"  replaced    {path}"
    write_text(folder / f"{path}.new", text)
    return f"  edited      {path} is yours; take over what is new in {path}.new"


def _stages(folder: Path) -> dict[str, str]:
    """Return the module of each stage of the project by its address, as `dvc repro` takes it."""
    found = {}
    for path in pipeline_files(folder):
        stages = read_yaml(folder / path).get("stages") if (folder / path).is_file() else None
        for name, block in stages.items() if isinstance(stages, dict) else []:
            command = COMMAND.search(str(block.get("cmd"))) if isinstance(block, dict) else None
            if command:
                found[name if path == PIPELINE else f"{path}:{name}"] = command[1]
    return found


def _changed_defaults(folder: Path) -> list[str]:
    """Compare the defaults with those of the last results, which are among their effective settings."""
    try:
        sections = settings_of(load_params(folder / PARAMS), PARAMS)
        scratch = load_runtime(folder / PARAMS).scratch_folder()
    except InputError as error:
        return [error.message]
    now = {
        f"{name}.{key}": value for name, keys in sections.items() for key, value in flattened(keys).items()
    }
    lines = []
    for name in effective_settings.PIPELINES:
        path = folder / settings_file(name)
        # DVC has removed them if the stage `check` was refused, as it is with other code.
        restore_settings(path, scratch)
        with suppress(OSError, ValueError):  # nothing was run yet, or `fne verify` says so
            defaults = parse_metrics(path.read_bytes()).get(DEFAULTS) or {}
            for key, before in defaults.items():
                if key not in now:
                    lines.append(f"{key}: {before!r} does not apply any more")
                elif now[key] != before:
                    lines.append(f"{key}: {before!r} is now {now[key]!r}; to keep it: -S '++{key}={before}'")
    return lines
