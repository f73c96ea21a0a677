"""Health checks of a machine and a project: its settings, weights, cache, disks, Git, remotes and locks.

A check is called as `check(repo, scratch)` and yields one line per problem, which ends in `; fix: COMMAND`.
The checks of `ADVICE` yield such lines about what works, but could be better, such as DVC's own defaults.
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

import torch

from fne.core.device import has_gpu
from fne.core.dvc import link_function, open_repo
from fne.core.errors import InputError
from fne.core.files import is_alive
from fne.core.settings import Runtime, load_key
from fne.extraction.settings import Torchvision, parse_weights
from fne.sharing.folders import LINKS, ignores_umask, is_shared
from fne.sharing.scratch_folder import damaged_rows, describe_scratch

Check = Callable[[Any, Path], Iterator[str]]

LOW_SPACE = 5e9  # bytes
# The package that DVC needs for each kind of remote.
PLUGINS = {"ssh": "dvc_ssh", "s3": "dvc_s3", "gs": "dvc_gs", "azure": "dvc_azure", "webdav": "dvc_webdav"}


def diagnose(runtime: Runtime, params: Path) -> str:
    """Return a description of the machine and the scratch folder, and the problems found."""
    scratch = runtime.scratch_folder()
    free = shutil.disk_usage(scratch if scratch.exists() else Path()).free
    gpu = torch.cuda.get_device_name() if has_gpu() else "none"
    lines = [
        f"python {platform.python_version()}, torch {torch.__version__}, dvc {version('dvc')}",
        f"GPU: {gpu}; torch threads: {runtime.threads or torch.get_num_threads()}",
        f"scratch folder {scratch}: {free / 1e9:.1f} GB free on its disk",
        *describe_scratch(scratch),
    ]
    missing, download = _weights(params)
    faults, advice = _project_lines(scratch)
    problems = [*_unsupported_settings(runtime), *missing, *damaged_rows(scratch), *faults]
    could = [*download, *advice]
    return "\n".join(
        [
            *lines,
            *(problems or ["no problems found"]),
            *["advice, which nothing depends on:"] * bool(could),
            *(f"  {line}" for line in could),
        ]
    )


def run(checks: Sequence[Check], repo: Any, scratch: Path) -> list[str]:
    """Return the lines of all checks of a project."""
    return [line for check in checks for line in check(repo, scratch)]


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


def _unsupported_settings(runtime: Runtime) -> Iterator[str]:
    """Find settings that this machine does not support."""
    cores = os.cpu_count() or 1
    if runtime.device == "cuda" and not has_gpu():
        yield "runtime.device is cuda, but torch finds no GPU; fix: set it to auto in params.yaml"
    for key in ("threads", "workers"):
        if (value := getattr(runtime, key)) > cores:
            yield f"runtime.{key} is {value}, but there are {cores} cores; fix: reduce it in params.yaml"


def _weights(params: Path) -> tuple[list[str], list[str]]:
    """Find weights that are missing, and weights that are still to be downloaded."""
    path = Path(load_key(params, "extract", "weights"))
    backbone = load_key(params, "extract", "backbone")
    if not path.is_file():
        return [f"extract.weights: {path}: no such file; fix: dvc pull {path}"], []
    if path.suffix in (".yaml", ".yml") and isinstance(named := parse_weights(path), Torchvision):
        if backbone not in named.sha256:
            return [], []  # `fne check` says so
        from torchvision.models import get_model_weights  # torchvision: slow to import

        file = get_model_weights(backbone)[named.name].url.rpartition("/")[2]
        if not Path(torch.hub.get_dir(), "checkpoints", file).is_file():
            return [], [f"{path}: {file} is not downloaded yet; fix: dvc repro extract, which downloads it"]
    return [], []


def _project_lines(scratch: Path) -> tuple[list[str], list[str]]:
    """Find problems of Git, DVC and the folders, and what could be better; none outside a DVC project."""
    if not Path(".dvc").is_dir():
        return [], []
    try:
        with open_repo() as repo:
            return run(CHECKS, repo, scratch), run(ADVICE, repo, scratch)
    except InputError as error:
        return [error.message], []


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
