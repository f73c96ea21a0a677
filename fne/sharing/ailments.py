"""What can be wrong with a project's surroundings, each with the command that mends it.

A check is called as `check(repo, scratch)` and returns lines that end in `; mend it: COMMAND`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fne.sharing.shared import LINKS, ignores_umask, is_shared
from fne.store.files import is_alive

LITTLE = 5e9  # bytes
PLUGINS = {"ssh": "dvc_ssh", "s3": "dvc_s3", "gs": "dvc_gs", "azure": "dvc_azure", "webdav": "dvc_webdav"}


def ailments(repo: Any, scratch: Path) -> list[str]:
    """Return everything that is wrong."""
    return [line for check in CHECKS for line in check(repo, scratch)]


def links(repo: Any, _: Path) -> Iterator[str]:
    """Find artifacts that are kept twice although the file system has links."""
    from dvc_objects.fs import system  # slow to import
    from dvc_objects.fs.utils import tmp_fname

    cache = _cache(repo)
    if not os.access(cache, os.W_OK):
        return
    probe, link = cache / tmp_fname(), Path(repo.root_dir) / f".{tmp_fname()}"
    try:
        probe.touch()
        possible = [kind for kind in LINKS.split(",")[:-1] if _links(getattr(system, kind), probe, link)]
    finally:
        probe.unlink(missing_ok=True)
    wanted = repo.config["cache"].get("type") or ["reflink", "copy"]
    if possible and not set(possible) & set(wanted):
        command = f"dvc config --local cache.type {LINKS} && dvc checkout --relink"
        ways = " or ".join(possible)
        yield f"every artifact is kept twice, and {ways} would do here; mend it: {command}"


def permissions(repo: Any, scratch: Path) -> Iterator[str]:
    """Find folders that we, or the group, cannot write to."""
    cache = _cache(repo)
    for path in (cache, Path(repo.tmp_dir), scratch):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            yield f"{path}: you may not write there; mend it: sudo chown -R $(id -un) {path}"
    for path in (cache, scratch):
        if path.exists() and is_shared(path) and not ignores_umask(path) and _umask() & 0o020:
            yield f"{path}: is shared, and your umask keeps the group from writing; mend it: umask 002"
    if cache.exists() and is_shared(cache) and repo.config["cache"].get("shared") != "group":
        yield f"{cache}: is shared, and DVC does not know; mend it: dvc config --local cache.shared group"


def space(repo: Any, scratch: Path) -> Iterator[str]:
    """Find disks that are almost full."""
    for path, command in ((_cache(repo), "dvc gc --workspace"), (scratch, "fne doctor --prune all")):
        free = shutil.disk_usage(path if path.exists() else repo.root_dir).free
        if free < LITTLE:
            yield f"{path}: {free / 1e9:.1f} GB free on its disk; mend it: {command}"


def identity(repo: Any, _: Path) -> Iterator[str]:
    """Find out whether Git knows who commits; experiments are commits."""
    for key, value in (("user.name", "Your Name"), ("user.email", "you@example.org")):
        words = ["git", "config", key]
        if subprocess.run(words, cwd=repo.root_dir, capture_output=True, check=False).returncode:  # noqa: S603  # constant
            fault = f"Git does not know your {key}, and experiments are commits"
            yield f"{fault}; mend it: git config {key} '{value}'"


def remotes(repo: Any, _: Path) -> Iterator[str]:
    """Find remotes that cannot be used or trusted."""
    default = repo.config["core"].get("remote")
    known = repo.config["remote"]
    if not default:
        name = next(iter(sorted(known)), None)
        command = f"dvc remote default {name}" if name else "dvc remote add --default team URL"
        yield f"no default remote, so `dvc push` and `dvc pull` share nothing; mend it: {command}"
    for name, settings in sorted(known.items()):
        scheme = str(settings.get("url", "")).partition("://")[0]
        if scheme in PLUGINS and find_spec(PLUGINS[scheme]) is None:
            yield f"remote '{name}' needs a package of DVC's; mend it: pip install 'dvc[{scheme}]'"
        if not settings.get("verify"):
            command = f"dvc remote modify {name} verify true"
            yield f"remote '{name}': DVC takes what it pulls from there for good; mend it: {command}"


def locks(repo: Any, _: Path) -> Iterator[str]:
    """Find locks of processes that are gone."""
    path = Path(repo.tmp_dir, "rwlock")
    if path.exists():
        try:
            noted = json.loads(path.read_text())
            readers = [owner for owners in noted.get("read", {}).values() for owner in owners]
            owners = [*noted.get("write", {}).values(), *readers]
            dead = sorted({owner["pid"] for owner in owners if owner and not is_alive(owner["pid"])})
            fault = f"holds locks of processes that are gone ({', '.join(map(str, dead))})" if dead else ""
        except (ValueError, AttributeError, TypeError, KeyError):
            fault = "is damaged, and DVC will not start"
        if fault:
            yield f"{path}: {fault}; mend it: rm {path}"
    index = Path(repo.root_dir, ".git/index.lock")
    if index.exists():
        yield f"{index}: a Git command is running, or was killed; mend it, if none is running: rm {index}"


def _cache(repo: Any) -> Path:
    return Path(repo.cache.local_cache_dir)


def _umask() -> int:
    os.umask(umask := os.umask(0))  # it can be read only by setting it
    return umask


def _links(make: Callable[[str, str], None], source: Path, link: Path) -> bool:
    try:
        make(str(source), str(link))
    except (OSError, NotImplementedError):
        return False
    finally:
        link.unlink(missing_ok=True)
    return True


CHECKS = [links, permissions, space, identity, remotes, locks]
