"""Health checks of a project: its cache, disks, Git, remotes and locks.

A check is called as `check(repo, scratch)` with the open project and the scratch folder. It yields
one line per problem, which ends in `; fix: COMMAND`. The checks of `ADVICE` yield lines of the same form
about what works, but could be better, such as DVC's own defaults.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from fne.core.dvc import link_function
from fne.core.files import is_alive
from fne.sharing.folders import LINKS, ignores_umask, is_shared

LOW_SPACE = 5e9  # bytes
# The package that DVC needs for each kind of remote.
PLUGINS = {"ssh": "dvc_ssh", "s3": "dvc_s3", "gs": "dvc_gs", "azure": "dvc_azure", "webdav": "dvc_webdav"}


def run_checks(repo: Any, scratch: Path) -> list[str]:
    """Return the problems that all checks find."""
    return [line for check in CHECKS for line in check(repo, scratch)]


def run_advice(repo: Any, scratch: Path) -> list[str]:
    """Return what could be better, although everything works."""
    return [line for check in ADVICE for line in check(repo, scratch)]


def links(repo: Any, _: Path) -> Iterator[str]:
    """Find artifacts that are stored twice although the file system supports links."""
    cache = _cache(repo)
    if not os.access(cache, os.W_OK):
        return
    name = f".{uuid4().hex}.tmp"
    probe, link = cache / name, Path(repo.root_dir) / name
    try:
        probe.touch()
        possible = [kind for kind in LINKS.split(",")[:-1] if _can_link(link_function(kind), probe, link)]
    finally:
        probe.unlink(missing_ok=True)
    wanted = repo.config["cache"].get("type") or ["reflink", "copy"]
    if possible and not set(possible) & set(wanted):
        command = f"dvc config --local cache.type {LINKS} && dvc checkout --relink"
        ways = " or ".join(possible)
        yield f"every artifact is stored twice, although {ways} works here; fix: {command}"


def permissions(repo: Any, scratch: Path) -> Iterator[str]:
    """Find folders that this user, or the group, cannot write to."""
    cache = _cache(repo)
    for path in (cache, Path(repo.tmp_dir), scratch):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            command = f"sudo chown -R $(id -un) {quote(str(path))}"
            others = "ask its owner to share it with `fne doctor --share`"
            yield f"{path}: you may not write there; fix: {command if _is_own(repo, path) else others}"
    for path in (cache, scratch):
        if path.exists() and is_shared(path) and not ignores_umask(path) and _umask() & 0o020:
            yield f"{path}: is shared, but your umask prevents the group from writing; fix: umask 002"
    if cache.exists() and is_shared(cache) and repo.config["cache"].get("shared") != "group":
        yield f"{cache}: is shared, but DVC does not know; fix: dvc config --local cache.shared group"


def space(repo: Any, scratch: Path) -> Iterator[str]:
    """Find disks that are almost full."""
    # What no branch, tag or experiment of the named projects refers to; DVC lists it first and asks.
    collect = "dvc gc --all-branches --all-tags --all-experiments"
    shared = f"{collect} --projects EVERY_PROJECT_THAT_USES_IT, because others may use this cache"
    prune = "fne doctor --prune all"
    cache = _cache(repo)
    for path, command in (
        (cache, collect if _is_own(repo, cache) else shared),
        (scratch, prune if _is_own(repo, scratch) else f"{prune}, if nobody else needs these rows"),
    ):
        free = shutil.disk_usage(path if path.exists() else repo.root_dir).free
        if free < LOW_SPACE:
            yield f"{path}: {free / 1e9:.1f} GB free on its disk; fix: {command}"


def identity(repo: Any, _: Path) -> Iterator[str]:
    """Find out whether Git knows the name of the user: experiments are commits."""
    for key, value in (("user.name", "Your Name"), ("user.email", "you@example.org")):
        words = ["git", "config", key]
        if subprocess.run(words, cwd=repo.root_dir, capture_output=True, check=False).returncode:  # noqa: S603  # constant
            fault = f"Git does not know your {key}, which it needs for experiments"
            yield f"{fault}; fix: git config {key} '{value}'"


def remotes(repo: Any, _: Path) -> Iterator[str]:
    """Find remotes that cannot be used."""
    for name, settings in sorted(repo.config["remote"].items()):
        scheme = str(settings.get("url", "")).partition("://")[0]
        if scheme in PLUGINS and find_spec(PLUGINS[scheme]) is None:
            yield f"remote '{name}' needs another package of DVC; fix: pip install 'dvc[{scheme}]'"


def remote_settings(repo: Any, _: Path) -> Iterator[str]:
    """Find out whether there is a default remote, and whether objects of remotes are verified."""
    default = repo.config["core"].get("remote")
    known = repo.config["remote"]
    if not default:
        name = next(iter(sorted(known)), None)
        command = f"dvc remote default {name}" if name else "dvc remote add --default team URL"
        yield f"no default remote, so `dvc push` and `dvc pull` do nothing; fix: {command}"
    for name, settings in sorted(known.items()):
        if not settings.get("verify"):
            command = f"dvc remote modify {name} verify true"
            yield f"remote '{name}': DVC does not verify what it pulls from there; fix: {command}"


def locks(repo: Any, _: Path) -> Iterator[str]:
    """Find locks of processes that have ended."""
    path = Path(repo.tmp_dir, "rwlock")
    if path.exists():
        try:
            recorded = json.loads(path.read_text())
            readers = [owner for owners in recorded.get("read", {}).values() for owner in owners]
            owners = [*recorded.get("write", {}).values(), *readers]
            dead = sorted({owner["pid"] for owner in owners if owner and not is_alive(owner["pid"])})
            fault = f"holds locks of processes that have ended ({', '.join(map(str, dead))})" if dead else ""
        except (ValueError, AttributeError, TypeError, KeyError):
            fault = "is damaged, so DVC does not start"
        if fault:
            yield f"{path}: {fault}; fix: rm {quote(str(path))}"
    index = Path(repo.root_dir, ".git/index.lock")
    if index.exists():
        command = f"rm {quote(str(index))}"
        yield f"{index}: a Git command is running, or was killed; fix, if none is running: {command}"


def _cache(repo: Any) -> Path:
    return Path(repo.cache.local_cache_dir)


def _is_own(repo: Any, path: Path) -> bool:
    """Return whether a folder is in this project, so that no other project is meant to use it."""
    return path.resolve().is_relative_to(Path(repo.root_dir).resolve())


def _umask() -> int:
    os.umask(umask := os.umask(0))  # it can be read only by setting it
    return umask


def _can_link(make: Callable[[str, str], None], source: Path, link: Path) -> bool:
    try:
        make(str(source), str(link))
    except (OSError, NotImplementedError):
        return False
    finally:
        link.unlink(missing_ok=True)
    return True


CHECKS = [permissions, space, identity, remotes, locks]
ADVICE = [links, remote_settings]
