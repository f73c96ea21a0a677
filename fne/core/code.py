"""The code of each stage as a digest, and the files that an installation has for projects.

A stage of this repository depends on folders of code. A project that `fne init` wrote has no code: its file
`code.yaml` has a digest of the same folders for each stage, which its pipelines name as a parameter. So an
upgrade runs nothing again before `fne upgrade` writes the digests of the new code, and a stage refuses to run
with code that its lock file would not record.

The pipeline files themselves say which folders a stage depends on. In a checkout they and the stages stand in
the root, in an installed package below `fne`.
"""

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import file_digest, files_in, text_digest
from fne.core.settings import read_yaml

CODE = "code.yaml"
SECTION = "code"  # the one section of that file
PACKAGE = Path(__file__).parents[1]
IS_INSTALLED = (PACKAGE / "shipped").is_dir()
# Pipelines, parameters, the papers' presets and tables, and names of weights.
SHIPPED = PACKAGE / "shipped" if IS_INSTALLED else PACKAGE.parent
STAGE_COMMAND = re.compile(r"python -m stages\.(\w+)")
# A dependency that is part of the library.
LIBRARY = re.compile(r" +- ((?:fne|stages|papers)/\S+)")
DIGITS = 16


def shipped_pipelines() -> dict[str, Path]:
    """Return the pipeline files by their pipelines, that of the root by an empty name.

    Those that are off have another name than DVC's.
    """
    found = [
        path for name in ("dvc", "pipeline") for path in sorted(SHIPPED.glob(f"pipelines/*/{name}.yaml"))
    ]
    return {"": SHIPPED / "dvc.yaml"} | {path.parent.name: path for path in found}


@cache
def code_of_stages() -> dict[str, tuple[str, ...]]:
    """Return the files and folders of code that each stage depends on, by the name of its module."""
    found: dict[str, dict[str, None]] = {}
    for path in shipped_pipelines().values():
        stage = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if command := STAGE_COMMAND.search(line):
                stage = command[1]
            elif listed := LIBRARY.fullmatch(line):
                found.setdefault(stage, {})[listed[1]] = None
    return {stage: tuple(sorted(places)) for stage, places in sorted(found.items())}


@cache
def code_digest(stage: str) -> str:
    """Return the digest of the code of a stage."""
    return text_digest("\n".join(map(_place_digest, code_of_stages()[stage])))[:DIGITS]


@cache
def _place_digest(name: str) -> str:
    place = _place(name)
    if not place.is_dir():
        return f"{name} {file_digest(place)}"
    files = [each for each in files_in(place) if "__pycache__" not in each.parts]
    return "\n".join(
        f"{name}/{each.relative_to(place).as_posix()} {file_digest(each)}" for each in sorted(files)
    )


def _place(name: str) -> Path:
    if not IS_INSTALLED or name.startswith("fne/"):
        return PACKAGE.parent / name
    return (PACKAGE if name.startswith("stages/") else SHIPPED) / name


def read_code(folder: Path = Path()) -> dict[str, str]:
    """Return the digest of the code of each stage that a project records; none if it has its own code."""
    path = folder / CODE
    if not path.is_file():
        return {}
    recorded = read_yaml(path).get(SECTION)
    if not isinstance(recorded, dict) or not recorded:
        raise InputError(f"{path}: has no digests in '{SECTION}'; run `fne upgrade` to write it again")
    return {str(stage): str(digest) for stage, digest in recorded.items()}


def refuse_other_code(stage: str, folder: Path = Path()) -> None:
    """Refuse a stage in a project that records other code for it."""
    recorded = read_code(folder)
    if recorded and stage in code_of_stages() and recorded.get(stage) != code_digest(stage):
        raise InputError(
            f"{folder / CODE}: stage '{stage}' has code {recorded.get(stage, 'none')}, but the installed "
            f"fne {installed_version()} has {code_digest(stage)}; run `fne upgrade`, then `dvc repro`"
        )


def installed_version() -> str:
    """Return the version of this installation."""
    return version("fne-pipeline")
