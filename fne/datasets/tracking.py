"""A warning about data sets that experiments in a copy of the repository would not find.

`dvc exp run --temp` and `--queue` copy tracked files only. A data set inside the
repository must therefore be tracked by Git or DVC; one outside, named by an absolute
path, is found from everywhere.
"""

import subprocess
from pathlib import Path
from typing import Any

import click

from fne.core.errors import InputError
from fne.core.params import load_params


def warn_if_untracked(root: Path, folder: Path) -> None:
    """Warn if a data set is inside the repository and tracked neither by Git nor by DVC.

    Args:
        root: what `catalog.root` names.
        folder: the data set's folder; where `root` is a file in it, more than that file must be tracked.
    """
    # The folder only: the file may be a link into DVC's cache.
    if _untracked(folder.resolve(), root.parent.resolve() / root.name):
        click.echo(
            f"Warning: catalog.root: {folder} is tracked neither by Git nor by DVC, so `dvc exp run --temp` "
            f"and `--queue` will not find it; run `dvc add {folder}`, or name one outside the repository",
            err=True,
        )


def _untracked(folder: Path, root: Path) -> bool:
    top = _git("rev-parse", "--show-toplevel")
    if top is None:
        return False
    repository = Path(top).resolve()
    if not folder.is_relative_to(repository):
        return False
    listed = (_git("ls-files", "-z", "--full-name", "--", str(folder)) or "").split("\0")
    if any(name and repository / name != root for name in listed):
        return False
    return not _is_out(folder, repository)


def _git(*arguments: str) -> str | None:
    """Return what git prints, or None where there is no git or no repository."""
    try:
        command = ["git", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # constant words
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()


def _is_out(folder: Path, repository: Path) -> bool:
    """Tell whether the folder, or one above it, was added to DVC or is the output of a stage."""
    above = [path for path in (folder, *folder.parents) if path.is_relative_to(repository)]
    return any(path.with_name(f"{path.name}.dvc").is_file() for path in above) or any(
        path in above for path in _outs(repository)
    )


def _outs(repository: Path) -> list[Path]:
    try:
        stages = load_params(repository / "dvc.yaml").get("stages")
    except InputError:
        return []
    if not isinstance(stages, dict):
        return []
    outs = [out for stage in stages.values() for out in _listed(stage)]
    return [(repository / out).resolve() for out in outs]


def _listed(stage: Any) -> list[str]:
    outs = stage.get("outs", []) if isinstance(stage, dict) else []
    # An out is a path, or a path with settings: `- data/demo: {cache: false}`.
    return [str(out if not isinstance(out, dict) else next(iter(out))) for out in outs]
