"""`fne doctor`: what this machine and the scratch folder hold."""

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import torch

from fne.activations.scratch import KIND
from fne.core.errors import InputError
from fne.core.runtime import Runtime
from fne.store.journal import Journal

# What of a kind of rows tells it apart from others, for people.
TELLING = ("backbone", "crops", "resize", "activations", "precision", "algorithm", "device", "weights")


def examine(runtime: Runtime) -> str:
    """Return what there is to know about the machine and the scratch folder, for people to read."""
    scratch = runtime.scratch_folder()
    free = shutil.disk_usage(scratch if scratch.exists() else Path()).free
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    lines = [
        f"python {platform.python_version()}, torch {torch.__version__}",
        f"GPU: {gpu}; threads of torch: {runtime.threads or torch.get_num_threads()}",
        f"scratch folder {scratch}: {free / 1e9:.1f} GB free on its disk",
        *(_line(folder) for folder in _kinds(scratch)),
    ]
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
            journal.path.unlink(missing_ok=True)
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


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.rows"))
