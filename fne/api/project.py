"""Where a project is: its folder is the one with `params.yaml`."""

from pathlib import Path

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.params import load_params
from fne.search.project import Project

PARAMS = "params.yaml"


def open_project(root: str | Path) -> Project:
    """Return the project in a folder.

    Raises:
        InputError: if the folder has no `params.yaml`.
    """
    params = Path(root).expanduser() / PARAMS
    if not params.is_file():
        raise InputError(
            f"{root}: not the folder of a project ({PARAMS} is missing); pass its folder as root"
        )
    project = Project(params)
    # Shards that were hashed once, and have not changed since, are not hashed again.
    stat_cache.use(project.scratch)
    return project


def find_project(path: Path) -> Project | None:
    """Return the project that a file or folder belongs to, or None.

    A `params.yaml` without a section `runtime` belongs to another program.
    """
    for folder in path.absolute().parents:
        params = folder / PARAMS
        if params.is_file() and "runtime" in load_params(params):
            return open_project(folder)
    return None
