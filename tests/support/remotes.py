"""A small DVC project and its remote, a folder beside it."""

import json
import stat
from pathlib import Path

from tests.support.projects import dvc, git, new_repository

REMOTE = "team"
FILES = 12  # in the folder


def make_project(folder: Path) -> Path:
    """Make a project with one file and one folder, committed and pushed."""
    project = folder / "project"
    (project / "rows").mkdir(parents=True)
    for number in range(FILES):
        (project / f"rows/{number}.bin").write_bytes(bytes([number]) * (100 + number))
    (project / "model.bin").write_bytes(b"model" * 100)
    new_repository(project)
    dvc(project, "init", "--quiet")
    dvc(project, "remote", "add", "--default", REMOTE, "../remote")
    dvc(project, "add", "--quiet", "rows", "model.bin")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message", "State")
    dvc(project, "push", "--quiet")
    return project


def remote_object(project: Path, path: str) -> Path:
    """Return where the remote keeps a file of the project."""
    return project.parent / "remote/files/md5" / place(project, path)


def cached_object(project: Path, path: str) -> Path:
    """Return where the cache keeps a file of the project."""
    return project / ".dvc/cache/files/md5" / place(project, path)


def place(project: Path, path: str) -> Path:
    """Return the path of an object below a cache or remote; for a folder, that of its listing."""
    top, _, inside = path.partition("/")
    oid = next(
        line.split()[-1]
        for line in (project / f"{top}.dvc").read_text().splitlines()
        if line.lstrip("- ").startswith("md5: ")
    )
    if inside:
        listed = json.loads((project / ".dvc/cache/files/md5" / oid[:2] / oid[2:]).read_text())
        oid = next(entry["md5"] for entry in listed if entry["relpath"] == inside)
    return Path(oid[:2], oid[2:])


def overwrite(path: Path, content: bytes) -> None:
    """Overwrite an object as a failing disk would: its mode stays."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o600)
    path.write_bytes(content)
    path.chmod(mode)
