"""The start of a project: its files, a Git repository, a DVC project. No file of the user is replaced."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fne.core.code import CODE, SHIPPED, code_of_stages, read_code, refuse_other_code
from fne.core.errors import InputError
from fne.core.files import readable_os_errors, write_text
from fne.core.settings import read_yaml
from fne.projects.look_at_data import Look, look_at
from fne.projects.template import (
    KEPT,
    WRITTEN,
    code_file,
    pipeline_files,
    project_files,
    written_digests,
)

# The oldest DVC that runs the pipelines.
OLDEST_DVC = (3, 60)
DVC_FILES = (".dvc/config", ".dvc/plots/page.html")


@dataclass(frozen=True)
class Started:
    """What `start_project` did."""

    written: list[str]
    kept: list[str]  # files of the user that were there
    initialized: list[str]  # Git, DVC
    look: Look | None

    @property
    def is_new(self) -> bool:
        """Whether there was no project, to which pipelines were added."""
        return "params.yaml" in self.written


def start_project(folder: Path, data: Path | None, pipelines: Sequence[str]) -> Started:
    """Write a project, or add pipelines to the one in the folder."""
    check_programs()
    look = None
    if read_code(folder):
        files = _additional(folder, data, pipelines)
    else:
        look = look_at(data, _root(data, folder)) if data else None
        files = project_files(pipelines, look.catalog if look else {})
    existing = [path for path, text in files.items() if path != CODE and _differs(folder / path, text)]
    if taken := [path for path in existing if path not in KEPT]:
        raise InputError(
            f"{folder}: has {', '.join(taken)} already, and no file is replaced; name an empty folder"
        )
    new = [path for path in files if path not in existing]
    with readable_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # The last file makes a project of the folder, so that a killed command can be run again.
    for path in new:
        write_text(folder / path, files[path])
    return Started(new, existing, [*_start_git(folder), *_start_dvc(folder)], look)


def check_programs() -> None:
    """Refuse an environment whose commands cannot run the pipelines."""
    for program, advice in (
        ("git", "install Git"),
        ("dvc", "activate the environment of fne, which has it"),
        ("python", "activate the environment of fne, whose Python the stages run with"),
    ):
        if shutil.which(program) is None:
            raise InputError(f"{program}: no such command; {advice}")
    found = run(Path(), "dvc", "--version")
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if numbers < OLDEST_DVC:
        needed = ".".join(map(str, OLDEST_DVC))
        raise InputError(f"dvc: version {found!r} is too old; run `pip install 'dvc>={needed}'`")


def run(folder: Path, *command: str) -> str:
    """Run a program in a folder, and return what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # no shell
    if done.returncode:
        fault = " ".join((done.stderr or done.stdout).split())[:300]
        raise InputError(f"{folder}: `{' '.join(command)}` failed: {fault}")
    return done.stdout.strip()


def _additional(folder: Path, data: Path | None, pipelines: Sequence[str]) -> dict[str, str]:
    """Return the files of further pipelines for the project in a folder."""
    if data or not pipelines:
        raise InputError(
            f"{folder}: is a project already; add pipelines with --with, or set catalog.root in params.yaml"
        )
    for stage in code_of_stages():
        refuse_other_code(stage, folder)
    files = {path: text for name in pipelines for path, text in pipeline_files(name).items()}
    return files | {CODE: code_file(read_yaml(folder / CODE)[WRITTEN] | written_digests(files))}


def _root(data: Path, folder: Path) -> str:
    """Return how the parameters of the project in a folder name a data set."""
    place = data.absolute()
    return str(place.relative_to(folder.absolute()) if place.is_relative_to(folder.absolute()) else place)


def _differs(path: Path, text: str) -> bool:
    """Return whether something else than this text is at a path."""
    if not path.exists() and not path.is_symlink():
        return False
    return not path.is_file() or path.read_bytes() != text.encode()


def _start_git(folder: Path) -> list[str]:
    if _repository(folder):
        return []
    run(folder, "git", "init", "--quiet")
    return ["Git"]


def _start_dvc(folder: Path) -> list[str]:
    if (folder / ".dvc").is_dir():
        return []
    top = _repository(folder)
    run(folder, "dvc", "init", "--quiet", *["--subdir"] * (top != folder.resolve()))
    # DVC has just made its own settings, which are empty.
    for name in DVC_FILES:
        write_text(folder / name, (SHIPPED / name).read_text(encoding="utf-8"))
    return ["DVC"]


def _repository(folder: Path) -> Path | None:
    """Return the root of the Git repository that a folder is in."""
    try:
        return Path(run(folder, "git", "rev-parse", "--show-toplevel")).resolve()
    except InputError:
        return None
