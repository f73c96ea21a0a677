"""`fne doctor`: what this machine and the scratch folder hold, and what is wrong with the surroundings."""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fne.activations.scratch import KIND, NOTES
from fne.activations.weights import Torchvision, parse_weights
from fne.core.errors import InputError
from fne.core.params import load_key
from fne.core.runtime import Runtime
from fne.sharing.ailments import ailments
from fne.sharing.named import open_project
from fne.sharing.shared import CACHE, make_shared, use_shared
from fne.store.journal import Journal

# What of a kind of rows tells it apart from others, for people.
TELLING = ("backbone", "crops", "resize", "activations", "precision", "algorithm", "device", "weights")


# What else stands in the scratch folder; all of it may be removed when nothing runs.
OTHERS = {"training": "training that has not finished", "search": "indexes of searched folders"}


def examine(runtime: Runtime, params: Path) -> str:
    """Return what there is to know about machine, scratch folder and project, for people to read."""
    scratch = runtime.scratch_folder()
    free = shutil.disk_usage(scratch if scratch.exists() else Path()).free
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    lines = [
        f"python {platform.python_version()}, torch {torch.__version__}, dvc {version('dvc')}",
        f"GPU: {gpu}; threads of torch: {runtime.threads or torch.get_num_threads()}",
        f"scratch folder {scratch}: {free / 1e9:.1f} GB free on its disk",
        *(_line(folder) for folder in _kinds(scratch)),
        *(
            f"  {title}: {_size(scratch / name, '**/*') / 1e6:.1f} MB, in {scratch / name}"
            for name, title in OTHERS.items()
            if _size(scratch / name, "**/*")
        ),
    ]
    faults = [*_machine(runtime), *_weights(params), *_project(scratch)]
    return "\n".join([*lines, *(faults or ["nothing to mend"])])


def share(runtime: Runtime, folder: Path, group: str | None) -> str:
    """Make a cache and a scratch folder that a group shares, let this project use them, and say so."""
    with open_project() as repo:
        own = Path(repo.cache.local_cache_dir)
        make_shared(folder, group)
        use_shared(repo, folder, runtime.scratch_folder())
    lines = [f"{folder}: this clone now uses the cache and the scratch folder there; each colleague runs"]
    lines.append(f"  fne doctor --share {folder}")
    if own.is_dir() and own.resolve() != (folder / CACHE).resolve():
        lines.append(f"what is in {own} stays there; take it along with")
        lines.append(f"  cp -rn {own}/. {folder / CACHE} && dvc checkout --relink && rm -rf {own}")
    return "\n".join(lines)


def prune(runtime: Runtime, name: str) -> str:
    """Remove the rows of one kind, or of all kinds, and say what was freed.

    Raises:
        InputError: if there is no such kind, or if a process is using it.
    """
    folders = _kinds(runtime.scratch_folder())
    chosen = [folder for folder in folders if name in ("all", folder.name)]
    if not chosen:
        known = ", ".join(folder.name for folder in folders) or "none"
        raise InputError(f"there are no rows '{name}' in {runtime.scratch_folder()}; there are: {known}")
    freed = sum(_size(folder) for folder in chosen)
    for folder in chosen:
        _empty(folder)
    return f"removed {len(chosen)} kinds of rows, {freed / 1e6:.1f} MB"


def _machine(runtime: Runtime) -> Iterator[str]:
    """Find settings that this machine cannot follow."""
    cores = os.cpu_count() or 1
    if runtime.device == "cuda" and not torch.cuda.is_available():
        yield "runtime.device is cuda, and torch finds no GPU; mend it: set it to auto in params.yaml"
    for key in ("threads", "workers"):
        if (asked := getattr(runtime, key)) > cores:
            yield f"runtime.{key} is {asked} on {cores} cores; mend it: lower it in params.yaml"


def _weights(params: Path) -> Iterator[str]:
    """Find weights that are not here yet."""
    path = Path(load_key(params, "extract", "weights"))
    backbone = load_key(params, "extract", "backbone")
    if not path.is_file():
        yield f"extract.weights: {path} is not there; mend it: dvc pull {path}"
    elif path.suffix in (".yaml", ".yml") and isinstance(named := parse_weights(path), Torchvision):
        from torchvision.models import get_model_weights  # slow to import

        file = get_model_weights(backbone)[named.name].url.rpartition("/")[2]
        if not Path(torch.hub.get_dir(), "checkpoints", file).is_file():
            remedy = f"dvc repro extract, which downloads {file}"
            yield f"the weights that {path} names are not here; mend it: {remedy}"


def _project(scratch: Path) -> list[str]:
    """Find what is wrong with Git, DVC and the folders; nothing outside a project."""
    if not Path(".dvc").is_dir():
        return []
    with open_project() as repo:
        return ailments(repo, scratch)


def _empty(folder: Path) -> None:
    """Remove the rows in a folder while holding all its locks; the locks themselves stay."""
    features = _kind(folder)["features"]
    journals = [Journal(path.with_suffix(".rows"), features) for path in sorted(folder.glob("*.lock"))]
    held = []
    try:
        for journal in journals:
            if not journal.lock():
                raise InputError(f"{folder}: process {journal.owner()} is using it; wait for it or stop it")
            held.append(journal)
        for journal in journals:
            for path in (journal.path, journal.path.with_suffix(NOTES)):
                path.unlink(missing_ok=True)
    finally:
        for journal in held:
            journal.unlock()


def _kinds(scratch: Path) -> list[Path]:
    return sorted(
        path.parent for path in scratch.glob(f"activations/*/{KIND}") if any(path.parent.glob("*.rows"))
    )


def _kind(folder: Path) -> dict[str, Any]:
    kind: dict[str, Any] = json.loads((folder / KIND).read_text())
    return kind


def _line(folder: Path) -> str:
    kind = _kind(folder)
    telling = ", ".join(str(kind[key])[:12] for key in TELLING if key in kind)
    size = _size(folder)
    rows = size // (kind["features"] * 4 + 64)
    return f"  {folder.name}  {rows} rows, {size / 1e6:.1f} MB: {telling}"


def _size(folder: Path, pattern: str = "*.rows") -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())
