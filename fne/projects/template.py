"""The files of a project, made from those of this repository: there is no second copy of any pipeline.

The commands name the installed stages, and the digest of a stage's code in `code.yaml` takes the place of the
folders of code that it depends on here. What only the embedded data set needs is left out for other data.
"""

import re
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from fne.core.code import (
    CODE,
    DIGITS,
    LIBRARY,
    SECTION,
    SHIPPED,
    STAGE_COMMAND,
    code_digest,
    code_of_stages,
    installed_version,
    shipped_pipelines,
)
from fne.core.dvc import PIPELINE, PIPELINES
from fne.core.files import text_digest

PARAMS, README = "params.yaml", "README.md"
DEMO, RENDER = "demo", "render"
# How the part of a first comment begins that says how to turn a pipeline on; in a project it is on.
OFF = "This pipeline is off"
WRITTEN = "written"  # the digests of pipeline files as they were written, in `code.yaml`
OPTIONAL = sorted(shipped_pipelines().keys() - {"", DEMO})
# These are merged with what is there by their programs, or not needed.
KEPT = (".gitignore", ".dvcignore", README)


def project_files(pipelines: Iterable[str], catalog: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a new project by their paths; without keys of `catalog`, one for the demo."""
    files = {name: _shipped(name) for name in (".gitignore", ".dvcignore")}
    files |= {f"weights/{path.name}": path.read_text() for path in sorted(SHIPPED.glob("weights/*.yaml"))}
    files |= {PARAMS: parameters(catalog), README: readme(), PIPELINE: pipeline("", not catalog)}
    for name in [*[DEMO] * (not catalog), *pipelines]:
        files |= pipeline_files(name)
    return files | {CODE: code_file(written_digests(files))}


def pipeline_files(name: str) -> dict[str, str]:
    """Return the files of an optional pipeline by their paths."""
    files = {f"{PIPELINES}/{name}/{PIPELINE}": pipeline(name)}
    params = f"{PIPELINES}/{name}/{PARAMS}"
    return files | ({params: _shipped(params)} if (SHIPPED / params).is_file() else {})


def pipeline(name: str, with_demo: bool = True) -> str:
    """Return a pipeline file for a project: with the installed stages, and the digests of their code."""
    lines: list[str] = []
    waiting, stage, is_off = "", "", False
    for line in shipped_pipelines()[name].read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and (is_off or OFF in line):
            lines += [] if is_off else [line.partition(OFF)[0].rstrip()]
            is_off = True
            continue
        is_off = False
        if command := STAGE_COMMAND.search(line):
            stage, named = command[1], False
        if line == "    deps:":
            # A stage that only checks depends on nothing but code.
            waiting = line
            lines += [] if named else ["    params:", *_code_entry(stage)]
            continue
        if LIBRARY.fullmatch(line) or (not with_demo and line == f"      - {RENDER}"):
            continue
        if waiting and line.startswith("      - "):
            lines.append(waiting)
        waiting = ""
        lines.append(STAGE_COMMAND.sub(r"python -m fne.stages.\1", line))
        if line == "    params:":
            lines += _code_entry(stage)
            named = True
    return "\n".join(lines) + "\n"


def _code_entry(stage: str) -> list[str]:
    return [f"      - {CODE}:", f"          - {SECTION}.{stage}"]


def parameters(catalog: Mapping[str, Any]) -> str:
    """Return the parameter file with keys of the section `catalog`; with any, there is no `render`."""
    text = _shipped(PARAMS)
    if not catalog:
        return text
    yaml, out = YAML(), StringIO()
    yaml.width = 4096
    content = yaml.load(re.sub(rf"^{RENDER}:.*?\n\n", "", text, flags=re.DOTALL | re.MULTILINE))
    content["catalog"].update(catalog)
    yaml.dump(content, out)
    return out.getvalue()


def written_digests(files: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the pipeline files among some texts, by their paths."""
    return {path: text_digest(text)[:DIGITS] for path, text in files.items() if path.endswith(PIPELINE)}


def code_file(written: Mapping[str, str]) -> str:
    """Return `code.yaml` for the installed code; `written`: digests of pipeline files by their paths."""
    return "\n".join(
        [
            "# `fne upgrade` writes this file. A stage refuses to run with other code than is recorded here.",
            f"fne: {installed_version()}",
            f"{SECTION}: # a digest for each stage; `dvc repro` runs a stage again if its digest changes",
            *(f"  {stage}: '{code_digest(stage)}'" for stage in code_of_stages()),
            "kept: # versions of finished work; `dvc repro` reuses what has the same version",
            *(f"  {what}: '{version}'" for what, version in kept_versions().items()),
            f"{WRITTEN}: # digests of pipeline files; `fne upgrade` replaces those that you have not edited",
            *(f"  {path}: '{digest}'" for path, digest in sorted(written.items())),
            "",
        ]
    )


def kept_versions() -> dict[str, str]:
    """Return the versions that decide whether finished work of the scratch folder is used again."""
    from fne.describing.write import WRITER_VERSION  # torch: slow to import
    from fne.extraction.extractor import ALGORITHM_VERSIONS, EXTRACTOR_VERSION
    from fne.store.images import DECODER_VERSION
    from fne.training.finished_runs import TRAINER_VERSION

    rows = [EXTRACTOR_VERSION, DECODER_VERSION, *ALGORITHM_VERSIONS.values()]
    return {
        "rows of images": "-".join(map(str, rows)),
        "training runs": str(TRAINER_VERSION),
        "sentences and tags": str(WRITER_VERSION),
    }


def readme() -> str:
    """Return the README of a project."""
    return f"""# Images and sentences

A project of fne {installed_version()}. Git keeps the settings and the figures, DVC the results.

- It needs the package fne-pipeline {installed_version()}: `pip install` the wheel of that version.
- `dvc repro` runs the stages that have changed. `params.yaml` has the settings.
- `fne search "a dog in the snow"` finds images. `fne --help` lists the other commands.
- `dvc pull --allow-missing` fetches the results of a colleague, `dvc push` shares yours.
- After another version of fne was installed, `fne upgrade` says what runs again.
"""


def _shipped(name: str) -> str:
    return (SHIPPED / name).read_text(encoding="utf-8")
