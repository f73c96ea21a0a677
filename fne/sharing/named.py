"""Which objects a project names: what `dvc.lock` and `.dvc` files say, now and in commits.

Outs that Git keeps (`cache: false`), that are not to be pushed (`push: false`), that belong to
another remote, or that were imported from another repository are not expected on a remote:
DVC does not send them either.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fne.core.errors import InputError

HASH = "md5"


@dataclass(frozen=True)
class Out:
    """A file or folder that DVC keeps, as it is named: the size of a folder is that of its files."""

    path: str
    oid: str
    size: int | None

    @property
    def is_folder(self) -> bool:
        """Tell whether the object lists the files of a folder."""
        return self.oid.endswith(".dir")


@dataclass
class Named:
    """All outs that were found, and what there is to say about the others."""

    outs: dict[str, Out] = field(default_factory=dict)  # by oid: one object may have several names
    unmade: list[str] = field(default_factory=list)  # outs without a digest
    imported: set[str] = field(default_factory=set)  # outs of other repositories
    unreadable: list[str] = field(default_factory=list)  # commits, with the reason

    def add(self, out: Out) -> None:
        """Note an out; the first name of an object is kept."""
        self.outs.setdefault(out.oid, out)


@contextmanager
def open_project(folder: Path | None = None) -> Iterator[Any]:
    """Open the DVC project of a folder, by default the current one.

    Raises:
        InputError: if there is none, or if its settings cannot be read.
    """
    from dvc.config import ConfigError  # slow to import
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo

    try:
        repo = Repo(str(folder) if folder else None)
    except NotDvcRepoError:
        raise InputError(f"{folder or Path.cwd()}: no DVC project here; run this in the project") from None
    except ConfigError as error:
        raise InputError(f"DVC's settings: {error}; see `dvc config --list --show-origin`") from None
    with repo:
        yield repo


def named_objects(repo: Any, remote: str, revisions: Sequence[str] = (), all_commits: bool = False) -> Named:
    """Return what a colleague would pull from a remote.

    Args:
        repo: the open project.
        remote: the remote's name.
        revisions: commits to look at; without any, the workspace and the last commit.
        all_commits: look at all commits as well.

    Raises:
        InputError: if there is no such revision, or if the workspace cannot be read.
    """
    named = Named()
    commits = list(revisions) or _last_commit(repo)
    try:
        for revision in repo.brancher(revs=commits, all_commits=all_commits, workspace=not revisions):
            _collect(repo, revision if revision != "workspace" else "", remote, named)
    except _dvc_exception() as error:
        raise InputError(f"{_one_line(error)}; run `dvc status` and mend that first") from None
    return named


def _collect(repo: Any, revision: str, remote: str, named: Named) -> None:
    try:
        outs = list(repo.index.outs)
    except _dvc_exception() as error:
        if not revision:
            raise
        # What DVC cannot read in an old commit, nobody can pull either.
        named.unreadable.append(f"{revision[:12]}: {_one_line(error)}")
        return
    for out in outs:
        if not out.use_cache or not out.can_push or (out.remote and out.remote != remote):
            continue
        path = "/".join(out.index_key[1])
        if out.stage.is_repo_import:
            named.imported.add(path)
        elif not out.hash_info:
            named.unmade += [path] * (not revision)
        elif out.hash_name != HASH:
            raise InputError(
                f"{path}: has a digest of DVC 2 ({out.hash_name}); run `dvc commit --force {path}`"
            )
        else:
            named.add(Out(path, out.hash_info.value, out.meta.size))


def _last_commit(repo: Any) -> list[str]:
    """Return what a clone starts from, unless nothing was ever committed."""
    from scmrepo.exceptions import SCMError

    try:
        return [repo.scm.get_rev()]
    except (SCMError, _dvc_exception()):
        return []


def _dvc_exception() -> type[Exception]:
    from dvc.exceptions import DvcException

    exception: type[Exception] = DvcException
    return exception


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
